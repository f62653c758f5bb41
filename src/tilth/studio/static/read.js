// Read: a text coloured by the surprise of the model, in bits.

import { action, api, el, field, intro, number, percent, totals, visible } from "./common.js";

const EXAMPLE = "Once upon a time, there was a little girl named Lily. She loved to play with her elephant.";
const WORST = 8;

export function show(main, { model, fields, remember }) {
  const text = el("textarea", { rows: 5, maxlength: 20000, spellcheck: "false" });
  text.value = fields.get("text") ?? EXAMPLE;
  const button = el("button", { type: "submit" }, "Read");
  const result = el("section", { "aria-live": "polite" });

  const run = action(button, async () => {
    remember({ text: text.value });
    const found = await api("/api/read", { model: model(), text: text.value });
    const place = el("div", {});
    result.replaceChildren(
      totals([
        ["bits per byte", found.bits_per_byte === null ? "–" : number(found.bits_per_byte, 4)],
        ["perplexity", found.perplexity === null ? "–" : number(found.perplexity)],
        ["bits", number(found.bits, 1)],
        ["tokens", found.tokens.length.toLocaleString("en")],
        ["bytes", found.bytes.toLocaleString("en")],
      ]),
      legend(),
      coloured(found.tokens, (token) => place.replaceChildren(alternatives(token))),
      place,
      ...worst(found.tokens),
    );
  });

  main.append(
    ...intro("Read", "The model reads a text and says at each token how surprised it is. A token of "
      + "probability p has log2(1/p) bits of surprise; fewer bits per byte are a better model."),
    el("form", { onsubmit: run }, field("Text", text), el("div", { class: "row" }, button)),
    result,
  );
}

/** The class of a surprise: 0 for less than a bit, 6 for more than 12. */
export const heat = (bits) => `heat-${Math.min(6, Math.max(0, Math.floor(bits / 2)))}`;

export function legend() {
  return el("p", { class: "legend" }, "bits ",
    ...[0, 2, 4, 6, 8, 10, 12].map((bits) =>
      el("span", { class: `token ${heat(bits)}` }, bits === 12 ? "12+" : String(bits))));
}

function coloured(tokens, choose) {
  return el("p", { class: "text" }, ...tokens.map((token) => el("button", {
    type: "button",
    class: `token ${heat(token.bits)}`,
    title: `${number(token.bits)} bits, probability ${percent(2 ** -token.bits)}`,
    onclick: () => choose(token),
  }, token.text)));
}

function alternatives(token) {
  return el("div", { class: "card" },
    el("h2", {}, el("code", {}, visible(token.text)), ` has ${number(token.bits)} bits`),
    el("p", { class: "soft" }, `Its probability was ${percent(2 ** -token.bits)}. The likeliest tokens there:`),
    el("ol", { class: "bars" }, ...token.likeliest.map((each) => el("li", {},
      el("code", {}, visible(each.text)),
      el("meter", { min: 0, max: 1, value: each.probability, "aria-label": "probability" }),
      el("span", {}, percent(each.probability))))));
}

function worst(tokens) {
  const most = tokens.map((token, place) => ({ ...token, place }))
    .sort((a, b) => b.bits - a.bits).slice(0, WORST);
  if (!most.length) return [];
  return [
    el("h2", {}, "Most surprising tokens"),
    el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, ...["token", "position", "bits", "expected"].map((name) =>
        el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...most.map((token) => el("tr", {},
        el("td", {}, el("code", {}, visible(token.text))),
        el("td", { class: "number" }, String(token.place)),
        el("td", { class: "number" }, number(token.bits)),
        el("td", {}, ...token.likeliest.slice(0, 3).map((each) =>
          el("code", { class: "gap" }, visible(each.text))))))))),
  ];
}
