// Tokens: a text coloured by token, how a word was merged, two tokenizers side by side, and the
// training of a vocabulary as a film of its merges.

import { action, api, el, field, intro, notions, number, setProblem, tokenText, totals, visible } from "./common.js";
import { saves } from "./picture.js";

const SENTENCE = "Once upon a time there was a little girl.";
const NOTIONS = [
  ["Token", "A sequence of bytes with a number, its id. A model reads and writes ids, never letters."],
  ["Piece", "A part of the text, such as a word with the space before it. Tokens do not cross its ends."],
  ["Merge", "A rule that makes one token of two neighbours. Its rank is its place in the order in which training found the merges; the "
    + "lowest rank is applied first."],
];
const still = matchMedia("(prefers-reduced-motion: reduce)");
const EXAMPLE = "The hedgehog couldn't find 1,234 apples.\nDas Mädchen — 你好!";

export function show(main, { model, folder, fields, remember }) {
  const text = el("textarea", { rows: 4, maxlength: 20000, spellcheck: "false" });
  text.value = fields.get("text") ?? EXAMPLE;
  const other = el("select", { id: "other" }, el("option", { value: "" }, "none"),
    ...folder.entries.filter((entry) => entry.has_tokenizer).map(({ id }) => el("option", { value: id }, id)));
  other.value = fields.get("other") ?? "";
  if (other.selectedIndex < 0) other.value = "";
  const button = el("button", { type: "submit" }, "Split into tokens");
  const result = el("section", { "aria-live": "polite" });
  const detail = el("section", { "aria-live": "polite" });

  let token = fields.get("token"); // that a link has chosen
  let kept = { sentence: fields.get("sentence") ?? "", frame: fields.get("frame") ?? "" };
  const note = (more) => {
    kept = { ...kept, ...more };
    remember({ text: text.value, other: other.value, ...kept });
  };
  const run = action(button, async () => {
    note({ token: "" });
    detail.replaceChildren();
    if (other.value) {
      const found = await api("/api/compare", { model: model(), other: other.value, text: text.value });
      result.replaceChildren(...comparison(found, [model(), other.value]));
      return;
    }
    const found = await api("/api/tokens", { model: model(), text: text.value });
    result.replaceChildren(summary(found), ...tokens(found, (piece, place) => {
      note({ token: String(place) });
      explain(piece).catch((error) => setProblem(error.message));
    }, token));
    token = null;
  });

  async function explain(piece) {
    const { nodes } = await api("/api/merges", { model: model(), text: piece.text });
    const trees = el("div", { class: "trees" }, ...nodes.map(tree));
    detail.replaceChildren(
      el("h2", {}, "How ", el("code", {}, visible(piece.text)), " is merged"),
      el("p", { class: "soft" }, "From single bytes upwards: the merge with the lowest rank comes first."),
      el("div", { class: "scroll", tabindex: 0 }, trees),
      table(piece),
      saves(`Merges of ${visible(piece.text)}`, trees, () => [["depth", "token", "id", "rank"], ...nodes.flatMap((node) => nodeRows(node))]),
    );
    detail.scrollIntoView({ block: "nearest" });
  }

  main.append(
    ...intro("Tokens", "A tokenizer splits a text into pieces, such as words, and merges the bytes of each "
      + "piece into tokens. Choose a token to see the merges of its piece."),
    notions(NOTIONS, "bpe.md", "unicode.md"),
    el("form", { onsubmit: run }, field("Text", text), el("div", { class: "row" }, field("Compare with", other), button)),
    result,
    detail,
    ...film({ model, fields, remember: note }),
  );
}

/** The tokens of two tokenizers, side by side; those that only one of them has are underlined. */
function comparison({ sides, is_marked: isMarked, bytes }, names) {
  const rows = [
    ["tokens", (side) => side.count.toLocaleString("en")],
    ["bytes per token", (side) => side.bytes_per_token === null ? "–" : number(side.bytes_per_token)],
    ["tokens that only it has", (side) => isMarked ? side.different.toLocaleString("en") : "–"],
    ["vocabulary", (side) => side.vocab_size.toLocaleString("en")],
  ];
  const head = el("tr", {}, el("td", {}), ...names.map((name) => el("th", { scope: "col", class: "number" }, name)));
  const shown = el("div", { class: "sides" }, ...sides.map((side, which) => el("section", {},
    el("h2", {}, names[which]),
    el("p", { class: "text" }, ...side.tokens.map((token, place) => el("span", {
      class: `token colour-${place % 6}${token.differs ? " differs" : ""}`, title: `id ${token.id}`,
    }, lines(token.text)))))));
  return [
    el("p", { class: "soft" }, isMarked
      ? `A token of one side that is not a token of the other is underlined. The text has ${bytes.toLocaleString("en")} bytes.`
      : "One of the tokenizers changes the text (a normalizer, a prefix space), so differences are not marked."),
    el("div", { class: "scroll" }, el("table", { class: "compared" }, el("thead", {}, head),
      el("tbody", {}, ...rows.map(([name, of]) => el("tr", {}, el("th", { scope: "row" }, name),
        ...sides.map((side) => el("td", { class: "number" }, of(side)))))))),
    shown,
    saves("Two tokenizers", shown, () => [["tokenizer", "token", "id", "only here"], ...sides.flatMap((side, which) =>
      side.tokens.map((token) => [names[which], token.text, token.id, token.differs ? 1 : 0]))]),
  ];
}

/** The training of a vocabulary: a sentence, split with more and more of its merges. */
function film({ model, fields, remember }) {
  const sentence = el("input", { type: "text", maxlength: 400, spellcheck: "false" });
  sentence.value = fields.get("sentence") ?? SENTENCE;
  const button = el("button", { type: "submit" }, "Show the merges");
  const result = el("div", { class: "film" });

  const run = action(button, async () => {
    const found = await api("/api/film", { model: model(), text: sentence.value });
    draw(found, fields.get("sentence") === sentence.value ? Number(fields.get("frame") ?? 0) : 0);
  });

  function draw(found, first) {
    const last = found.frames.length - 1;
    const slider = el("input", { type: "range", min: 0, max: last, step: 1, "aria-label": "Merges learned" });
    const play = el("button", { type: "button", class: "plain" }, "Play");
    const words = el("p", { role: "status", class: "soft" });
    const place = el("p", { class: "text" });
    let timer = 0;

    const to = (frame) => {
      slider.value = frame;
      const now = found.frames[frame];
      slider.setAttribute("aria-valuetext", `${now.merges.toLocaleString("en")} merges`);
      words.textContent = now.pair
        ? `Merge ${now.merges.toLocaleString("en")} of ${found.merges.toLocaleString("en")}: ${visible(now.pair[0])} + `
          + `${visible(now.pair[1])} → ${visible(now.token)}. ${now.count} tokens.`
        : `No merge yet: ${now.count} single bytes.`;
      const isNew = new Set(now.new.map(String));
      place.replaceChildren(...now.pieces.map((piece, i) => el("span", { class: "piece" }, ...piece.map((token, j) =>
        el("span", { class: `token colour-${i % 6}${isNew.has(`${i},${j}`) ? " new" : ""}` }, visible(token))))));
      remember({ sentence: sentence.value, frame: String(frame) });
    };
    const stop = () => {
      clearInterval(timer);
      timer = 0;
      play.textContent = "Play";
    };
    const toggle = () => {
      if (timer) {
        stop();
        return;
      }
      if (Number(slider.value) === last) to(0);
      play.textContent = "Pause";
      timer = setInterval(() => {
        if (!slider.isConnected || Number(slider.value) === last) stop();
        else to(Number(slider.value) + 1);
      }, still.matches ? 1500 : 500);
    };
    play.addEventListener("click", toggle);
    slider.addEventListener("input", () => {
      stop();
      to(Number(slider.value));
    });
    slider.addEventListener("keydown", (event) => {
      if (event.key !== " ") return;
      event.preventDefault();
      toggle();
    });
    result.replaceChildren(el("div", { class: "row controls" }, play, slider), words, place,
      saves("Merges of the sentence", place, () => [["merges", "left", "right", "token", "tokens of the sentence"],
        ...found.frames.map(({ merges, pair, token, count }) => [merges, ...(pair ?? ["", ""]), token, count])]),
      ...remarks(found));
    to(Math.min(last, Math.max(0, Number.isInteger(first) ? first : 0)));
  }

  return [
    el("h2", {}, "The training of the vocabulary"),
    el("p", { class: "soft" }, "Training merges the most frequent pair of tokens, again and again. The film shows a sentence "
      + "after each merge that changes it. Space plays and pauses; the arrow keys step."),
    el("form", { onsubmit: run }, field("Sentence", sentence), el("div", { class: "row" }, button)),
    result,
  ];
}

function remarks(found) {
  if (!found.has_whole_pieces) return [];
  const whole = found.whole_pieces.map((piece) => el("code", { class: "gap" }, visible(piece)));
  return [el("p", { class: "soft" }, "The ranks of this vocabulary order its tokens (as in tiktoken, or with ignore_merges), so "
    + "the merges are in the order of the file, which need not be that of a training. A piece that is a token is taken whole, "
    + "before any merge. ", ...(whole.length ? ["Here the merges alone do not give: ", ...whole]
      : ["Here the merges give the same tokens."]))];
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

function tokens(found, explain, first) {
  const all = found.pieces.flatMap((piece) => piece.tokens.map((token) => ({ ...token, piece })));
  const text = tokenText(all.map((token, place) => ({
    text: lines(token.text), style: `colour-${place % 6}`, title: `id ${token.id}, bytes ${token.bytes}`,
  })), (place) => explain(all[place].piece, place), first);
  return [text, saves("Tokens", text, () => [["piece", "token", "id", "bytes", "rank"],
    ...all.map((token) => [token.piece.text, token.text, token.id, token.bytes, token.rank])])];
}

/** A token with its line breaks visible. */
const lines = (text) => text.includes("\n") ? visible(text) + "\n" : text;

function tree(node) {
  const rank = node.rank === null ? "byte" : `merge ${node.rank.toLocaleString("en")}`;
  const label = el("div", { class: "node" },
    el("code", {}, visible(node.text)),
    el("small", {}, node.id === null ? rank : `${rank} · id ${node.id}`));
  if (!node.parts.length) return el("div", { class: "tree" }, label);
  return el("div", { class: "tree" }, label, el("div", { class: "parts" }, ...node.parts.map(tree)));
}

/** The rows of a tree: a token comes before its parts. */
const nodeRows = (node, depth = 0) =>
  [[depth, node.text, node.id, node.rank], ...node.parts.flatMap((part) => nodeRows(part, depth + 1))];

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
