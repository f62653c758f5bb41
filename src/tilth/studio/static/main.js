// The frame of the pages: navigation, the choice of an entry of the folder, and links that restore a
// view.
//
// A view is the part of the address after "#": the page, the model and the fields of the page. A
// link fills in the fields and generates nothing; a person presses the button.

import { api, el, setProblem } from "./common.js";

// `entries` are those that a page is about, if it is about any: where the folder has none, it says
// what to do. With a label, one of them is chosen in the header.
const isModel = (entry) => entry.is_model;
const PAGES = {
  runs: { title: "Runs", load: () => import("./runs.js"), entries: (entry) => entry.kind === "run", what: "run" },
  tokens: { title: "Tokens", load: () => import("./tokens.js"), entries: (entry) => entry.has_tokenizer, label: "Tokenizer", what: "tokenizer" },
  write: { title: "Write", load: () => import("./write.js"), entries: isModel, label: "Model", what: "model" },
  read: { title: "Read", load: () => import("./read.js"), entries: isModel, label: "Model", what: "model" },
  inside: { title: "Inside", load: () => import("./inside.js"), entries: isModel, label: "Model", what: "model" },
  time: { title: "Time", load: () => import("./time.js"), entries: (entry) => entry.kind === "run", label: "Run", what: "run" },
  cost: { title: "Cost", load: () => import("./cost.js") },
  docs: { title: "Docs", load: () => import("./docs.js"), isHidden: true },
};

const select = document.getElementById("model");
const main = document.getElementById("page");
const nav = document.querySelector("nav");
const label = document.getElementById("label");
let folder = { name: "", entries: [] };
let leave = () => {};

function view() {
  const [name, fields] = location.hash.slice(1).split("?");
  return { name: name in PAGES ? name : "runs", fields: new URLSearchParams(fields) };
}

/** Replace the fields in the address, without a new entry in the history; a list is repeated. */
function remember(fields) {
  const chosen = PAGES[view().name].label ? { model: select.value } : {};
  const kept = Object.entries({ ...chosen, ...fields })
    .flatMap(([key, values]) => [values].flat().map((value) => [key, value])).filter(([, value]) => value !== "");
  history.replaceState(null, "", `#${view().name}?${new URLSearchParams(kept)}`);
  updateLinks();
}

function updateLinks() {
  const { name } = view();
  for (const link of nav.children) {
    const own = link.dataset.page;
    link.href = select.value && PAGES[own].label ? `#${own}?${new URLSearchParams({ model: select.value })}` : `#${own}`;
    if (own === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Offer the entries of the folder that a page is about; return whether there are any. */
function offer(page, asked) {
  const fitting = page.entries ? folder.entries.filter(page.entries) : [];
  const chosen = [asked, select.value, fitting.find((entry) => entry.is_model)?.id]
    .find((id) => fitting.some((entry) => entry.id === id));
  select.replaceChildren(...fitting.map(({ id }) => el("option", { value: id }, id)));
  if (chosen !== undefined) select.value = chosen;
  label.textContent = page.label ?? "";
  select.parentElement.hidden = !fitting.length || !page.label;
  return !page.entries || fitting.length > 0;
}

/** What to do while the folder has nothing for a page. */
function nothing(page) {
  const step = (words, sentence) => el("li", {}, sentence, el("pre", {}, el("code", {}, words)));
  return [
    el("h1", {}, page.title),
    el("p", {}, `The folder ${folder.name} has no ${page.what} yet. Reload this page when it has one.`),
    el("ul", { class: "steps" },
      step("tilth demo", "See everything in five minutes: the demo makes a corpus, a tokenizer and a run."),
      step("tilth train small --data DATA --out runs/first", "Train a model on a data folder."),
      step("tilth studio FOLDER", "Or open another folder: that of your runs."))];
}

async function show() {
  const { name, fields } = view();
  const page = PAGES[name];
  leave();
  leave = () => {};
  setProblem("");
  document.title = `${page.title} · tilth studio`;
  try {
    folder = await api("/api/folder");
    const isThere = offer(page, fields.get("model"));
    updateLinks();
    const shown = await page.load();
    if (view().name !== name) return; // another page was opened meanwhile
    main.replaceChildren(...(isThere ? [] : nothing(page)));
    if (isThere) leave = shown.show(main, { model: () => select.value, folder, fields, remember }) ?? leave;
  } catch (error) {
    main.replaceChildren();
    setProblem(error.message);
  }
}

for (const [name, { title, isHidden }] of Object.entries(PAGES)) if (!isHidden) nav.append(el("a", { "data-page": name }, title));
select.addEventListener("change", () => {
  remember(Object.fromEntries([...view().fields.keys()].map((name) => [name, view().fields.getAll(name)]).filter(([name]) => name !== "model")));
  show();
});
window.addEventListener("hashchange", show);
await show();
