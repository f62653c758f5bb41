// Tokens: a text coloured by token, and how a word was merged.

import { action, api, el, field, intro, number, totals, visible } from "./common.js";

const EXAMPLE = "The hedgehog couldn't find 1,234 apples.\nDas Mädchen — 你好!";

export function show(main, { model, fields, remember }) {
  const text = el("textarea", { rows: 4, maxlength: 20000, spellcheck: "false" });
  text.value = fields.get("text") ?? EXAMPLE;
  const button = el("button", { type: "submit" }, "Split into tokens");
  const result = el("section", { "aria-live": "polite" });
  const detail = el("section", { "aria-live": "polite" });

  const run = action(button, async () => {
    remember({ text: text.value });
    const found = await api("/api/tokens", { model: model(), text: text.value });
    detail.replaceChildren();
    result.replaceChildren(summary(found), tokens(found, (piece) => explain(piece)));
  });

  async function explain(piece) {
    const { nodes } = await api("/api/merges", { model: model(), text: piece.text });
    detail.replaceChildren(
      el("h2", {}, "How ", el("code", {}, visible(piece.text)), " is merged"),
      el("p", { class: "soft" }, "From single bytes upwards: the merge with the lowest rank comes first."),
      el("div", { class: "scroll" }, el("div", { class: "trees" }, ...nodes.map(tree))),
      table(piece),
    );
    detail.scrollIntoView({ block: "nearest" });
  }

  main.append(
    ...intro("Tokens", "A tokenizer splits a text into pieces, such as words, and merges the bytes of each "
      + "piece into tokens. Choose a token to see the merges of its piece."),
    el("form", { onsubmit: run }, field("Text", text), el("div", { class: "row" }, button)),
    result,
    detail,
  );
}

function summary(found) {
  return totals([
    ["tokens", found.tokens.toLocaleString("en")],
    ["pieces", found.pieces.length.toLocaleString("en")],
    ["bytes", found.bytes.toLocaleString("en")],
    ["bytes per token", found.tokens ? number(found.bytes / found.tokens) : "–"],
    ["vocabulary", found.vocab_size.toLocaleString("en")],
  ]);
}

function tokens(found, explain) {
  let place = 0;
  return el("p", { class: "text" }, ...found.pieces.flatMap((piece) =>
    piece.tokens.map((token) => el("button", {
      type: "button",
      class: `token colour-${place++ % 6}`,
      title: `id ${token.id}, bytes ${token.bytes}`,
      onclick: () => explain(piece),
    }, token.text.includes("\n") ? visible(token.text) + "\n" : token.text))));
}

function tree(node) {
  const rank = node.rank === null ? "byte" : `merge ${node.rank.toLocaleString("en")}`;
  const label = el("div", { class: "node" },
    el("code", {}, visible(node.text)),
    el("small", {}, node.id === null ? rank : `${rank} · id ${node.id}`));
  if (!node.parts.length) return el("div", { class: "tree" }, label);
  return el("div", { class: "tree" }, label, el("div", { class: "parts" }, ...node.parts.map(tree)));
}

function table(piece) {
  const head = ["token", "id", "bytes", "rank"].map((name) => el("th", { scope: "col" }, name));
  const rows = piece.tokens.map((token) => el("tr", {},
    el("td", {}, el("code", {}, visible(token.text))),
    el("td", { class: "number" }, String(token.id)),
    el("td", {}, el("code", {}, token.bytes)),
    el("td", { class: "number" }, token.rank === null ? "–" : token.rank.toLocaleString("en"))));
  return el("div", { class: "scroll" },
    el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)));
}
