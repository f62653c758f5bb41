// Docs: a page of the docs, which the package has. It reads the part of Markdown that they use:
// headings, paragraphs, lists, tables, code, links, emphasis. Nothing becomes HTML as such.

import { el } from "./common.js";

export function show(main, { fields }) {
  const name = /^[a-z]+\.md$/.test(fields.get("page") ?? "") ? fields.get("page") : "index.md";
  (async () => {
    const response = await fetch(`/docs/${name}`);
    const article = el("article", { class: "docs" });
    if (response.ok) article.append(...blocks((await response.text()).split("\n")));
    else article.append(el("p", {}, `This installation has no page ${name}.`));
    main.replaceChildren(article);
  })();
}

function blocks(lines) {
  const made = [];
  while (lines.length) {
    const line = lines.shift();
    const heading = /^(#{1,4}) (.*)/.exec(line);
    if (heading) made.push(el(`h${heading[1].length}`, {}, ...inline(heading[2])));
    else if (/^```/.test(line)) made.push(code(taken(lines, (each) => !/^```/.test(each), 1)));
    else if (/^ {4}/.test(line)) made.push(code([line, ...taken(lines, (each) => /^ {4}|^$/.test(each))].map((each) => each.slice(4))));
    else if (/^\|/.test(line)) made.push(table([line, ...taken(lines, (each) => /^\|/.test(each))]));
    else if (/^(- |\d+\. )/.test(line)) made.push(list([line, ...taken(lines, (each) => /^(- |\d+\. | {2,}\S)/.test(each))]));
    else if (line.trim()) made.push(paragraph([line, ...taken(lines, (each) => each.trim() && !/^(#|```|\||- )/.test(each))]));
  }
  return made;
}

/** Take lines from the front while a test holds, and then so many more. */
function taken(lines, test, more = 0) {
  const end = lines.findIndex((each) => !test(each));
  const found = lines.splice(0, end < 0 ? lines.length : end);
  lines.splice(0, more);
  return found;
}

const code = (lines) => el("pre", { tabindex: 0 }, el("code", {}, lines.join("\n").trimEnd()));
const paragraph = (lines) => el("p", {}, ...inline(lines.join(" ")));

function list(lines) {
  const items = [];
  for (const line of lines) {
    if (/^(- |\d+\. )/.test(line)) items.push(line.replace(/^(- |\d+\. )/, ""));
    else items[items.length - 1] += ` ${line.trim()}`;
  }
  return el(/^-/.test(lines[0]) ? "ul" : "ol", {}, ...items.map((each) => el("li", {}, ...inline(each))));
}

function table([head, , ...rows]) {
  const cells = (line, kind) => line.replace(/^\||\|\s*$/g, "").split(/(?<!\\)\|/)
    .map((each) => el(kind, {}, ...inline(each.trim())));
  return el("div", { class: "scroll", tabindex: 0 }, el("table", {},
    el("thead", {}, el("tr", {}, ...cells(head, "td"))), el("tbody", {}, ...rows.map((row) => el("tr", {}, ...cells(row, "td"))))));
}

function inline(text) {
  return text.split(/(`[^`]+`|!?\[[^\]]*\]\([^)]*\)|\*\*[^*]+\*\*|\*[^*\s][^*]*\*)/).map((part) => {
    const link = /^\[([^\]]*)\]\(([^)]*)\)$/.exec(part);
    const page = link && /^([a-z]+\.md)(#.*)?$/.exec(link[2]);
    if (/^`/.test(part)) return el("code", {}, part.slice(1, -1));
    if (/^!\[/.test(part)) return ""; // a picture, which the package does not have
    if (link) return page ? el("a", { href: `#docs?page=${page[1]}` }, ...inline(link[1])) : el("span", {}, ...inline(link[1]));
    if (/^\*\*/.test(part)) return el("strong", {}, part.slice(2, -2));
    if (/^\*/.test(part)) return el("em", {}, part.slice(1, -1));
    return part.replaceAll("\\", "");
  });
}
