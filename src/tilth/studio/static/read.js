// Read: a text coloured by the surprise of a model, in bits; or by the difference between two models.

import { action, api, el, field, intro, notions, number, percent, tokenText, totals, visible, whole } from "./common.js";
import { saves } from "./picture.js";

const EXAMPLE = "Once upon a time, there was a little girl named Lily. She loved to play with her elephant.";
const WORST = 8;
const NOTIONS = [
  ["Surprise", "A token of probability p has log2(1/p) bits of surprise: 0 bits are certainty, 1 bit is the toss of a coin, 10 bits are "
    + "one chance in a thousand."],
  ["Bits per byte", "All bits of the text, divided by its bytes in UTF-8. Fewer are a better model. It does not depend on the tokenizer, so "
    + "it compares models of different vocabularies."],
  ["Perplexity", "2 to the mean bits per token: the number of equally likely tokens that the model hesitates between. It depends on the tokenizer."],
  ["Comparison", "With one tokenizer, token by token. With two, the text is cut where both have the end of a token, and the bits of each "
    + "part are added up."],
];

export function show(main, { model, folder, fields, remember }) {
  const text = el("textarea", { rows: 5, maxlength: 20000, spellcheck: "false" });
  text.value = fields.get("text") ?? EXAMPLE;
  const steps = [stepChoice(fields.get("step")), stepChoice(fields.get("other_step"))];
  const models = folder.entries.filter((entry) => entry.is_model);
  const other = el("select", { id: "other" }, el("option", { value: "" }, "none"),
    ...models.map(({ id }) => el("option", { value: id }, id)));
  other.value = fields.get("other") ?? "";
  if (other.selectedIndex < 0) other.value = "";
  other.addEventListener("change", () => steps[1].fill(other.value));
  const button = el("button", { type: "submit" }, "Read");
  const result = el("section", { "aria-live": "polite" });
  let token = fields.get("token"); // that a link has chosen

  const run = action(button, async () => {
    const [step, otherStep] = steps.map((each) => each.value());
    const view = { text: text.value, step: step ?? "", other: other.value, other_step: other.value ? otherStep ?? "" : "" };
    remember(view);
    const asked = { model: model(), step: step === null ? null : Number(step), text: text.value };
    const note = (place) => remember({ ...view, token: String(place) });
    if (!other.value) {
      result.replaceChildren(...reading(await api("/api/read", asked), note, token));
      token = null;
      return;
    }
    const found = await api("/api/read/compare", { ...asked, other: other.value, other_step: otherStep === null ? null : Number(otherStep) });
    result.replaceChildren(...comparison(found, [nameOf(asked.model, step), nameOf(other.value, otherStep)], note, token));
    token = null;
  });

  main.append(
    ...intro("Read", "The model reads a text and says at each token how surprised it is. Choose a token to see what it expected; "
      + "choose a second model, or another checkpoint, to see where the two differ."),
    notions(NOTIONS, "generation.md", "training.md"),
    el("form", { onsubmit: run }, field("Text", text), el("div", { class: "row" },
      steps[0].element, field("Compare with", other), steps[1].element, button)),
    result,
  );
  steps[0].fill(model());
  steps[1].fill(other.value);
}

const nameOf = (id, step) => step === null ? id : `${id}, step ${whole(Number(step))}`;

/** The choice of a checkpoint of a run; hidden for models that have one. */
function stepChoice(given) {
  const select = el("select", {}, el("option", { value: "" }, "best"));
  const element = field("Checkpoint", select);
  element.hidden = true;
  if (/^\d+$/.test(given ?? "")) select.append(el("option", { value: given, selected: true }, `step ${given}`));
  async function fill(id) {
    element.hidden = true;
    if (!id) return;
    const { steps } = await api("/api/steps", { model: id }).catch(() => ({ steps: [] }));
    const chosen = select.value;
    select.replaceChildren(el("option", { value: "" }, "best"),
      ...steps.map((step) => el("option", { value: step }, `step ${whole(step)}`)));
    select.value = chosen;
    if (select.selectedIndex < 0) select.value = "";
    element.hidden = !steps.length;
  }
  return { element, fill, value: () => select.value === "" ? null : select.value };
}

// --- one model ------------------------------------------------------------------------------------

function reading(found, note, token) {
  const place = el("div", {});
  return [
    totals([
      ["bits per byte", found.bits_per_byte === null ? "–" : number(found.bits_per_byte, 4)],
      ["perplexity", found.perplexity === null ? "–" : number(found.perplexity)],
      ["bits", number(found.bits, 1)],
      ["tokens", whole(found.tokens.length)],
      ["bytes", whole(found.bytes)],
    ]),
    ...surprise(found.tokens, (chosen) => {
      note(chosen);
      place.replaceChildren(alternatives(found.tokens[chosen]));
    }, token),
    place,
    ...worst(found.tokens),
  ];
}

/** A text coloured by surprise, with its legend and downloads. */
export function surprise(tokens, choose, first) {
  const text = tokenText(tokens.map(({ text, bits }) => ({
    text, style: heat(bits), title: `${number(bits)} bits, probability ${percent(2 ** -bits)}`,
  })), choose, first);
  const legend = el("p", { class: "legend" }, "bits ",
    ...[0, 2, 4, 6, 8, 10, 12].map((bits) => el("span", { class: `token ${heat(bits)}` }, bits === 12 ? "12+" : String(bits))));
  const shown = el("div", {}, legend, text);
  return [shown, saves("Surprise in bits", shown, () =>
    [["token", "id", "bits"], ...tokens.map((token) => [token.text, token.id, token.bits])])];
}

/** The class of a surprise: 0 for less than 2 bits, 6 for 12 and more. */
const heat = (bits) => `heat-${Math.min(6, Math.max(0, Math.floor(bits / 2)))}`;

export function alternatives(token) {
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
    table(["token", "position", "bits", "expected"], most.map((token) => [
      el("code", {}, visible(token.text)), whole(token.place), number(token.bits),
      el("span", {}, ...token.likeliest.slice(0, 3).map((each) => el("code", { class: "gap" }, visible(each.text)))),
    ])),
  ];
}

// --- two models -----------------------------------------------------------------------------------

function comparison({ sides, segments, has_same_tokenizer: isSame }, names, note, token) {
  const amount = (value, digits) => value === null ? "–" : number(value, digits);
  const difference = (a, b, digits) => a === null || b === null ? "–" : signed(b - a, digits);
  const rows = [["bits per byte", "bits_per_byte", 4], ["bits", "bits", 1], ["perplexity", "perplexity", 2]]
    .map(([name, key, digits]) => [name, ...sides.map((side) => amount(side[key], digits)),
      difference(sides[0][key], sides[1][key], digits)]);
  const counts = [["tokens", (side) => side.tokens.length], ["vocabulary", (side) => side.vocab_size]]
    .map(([name, of]) => [name, ...sides.map((side) => whole(of(side))), difference(of(sides[0]), of(sides[1]), 0)]);
  const head = el("tr", {}, el("td", {}), ...[...names, "difference"].map((name) => el("th", { scope: "col", class: "number" }, name)));
  const summary = el("div", { class: "scroll", tabindex: 0 }, el("table", { class: "compared" }, el("thead", {}, head),
    el("tbody", {}, ...[...rows, ...counts].map(([name, ...cells]) => el("tr", {}, el("th", { scope: "row" }, name),
      ...cells.map((cell) => el("td", { class: "number" }, cell)))))));
  if (segments === null) {
    return [summary, el("p", { class: "soft" }, "One of the tokenizers changes the text (a normalizer, a prefix space), so the parts "
      + "cannot be compared; the totals can.")];
  }
  const place = el("div", {});
  const change = ({ bits: [a, b] }) => a === null || b === null ? 0 : b - a;
  const parts = () => [["part", "bits 1", "bits 2", "difference"], ...segments.map((each) => [each.text, ...each.bits, change(each)])];
  const most = segments.map((each, index) => ({ ...each, index }))
    .sort((a, b) => Math.abs(change(b)) - Math.abs(change(a))).slice(0, WORST);
  const shown = el("div", {},
    el("p", { class: "legend" }, `${names[1]} needs fewer bits `, ...[-4, -2, -0.5].map(mark), mark(0), ...[0.5, 2, 4].map(mark), " more bits"),
    tokenText(segments.map((each) => ({
      text: each.text, style: shade(change(each)),
      title: `${each.bits.map((bits) => bits === null ? "–" : number(bits)).join(" and ")} bits`,
    })), (chosen) => {
      note(chosen);
      place.replaceChildren(both(segments[chosen], sides, names));
    }, token));
  return [
    summary,
    el("p", { class: "soft" }, isSame ? "The two have the same tokenizer, so they are compared token by token."
      : "The two have different tokenizers, so a part ends where both have the end of a token."),
    shown,
    saves("Difference in bits", shown, parts),
    place,
    el("h2", {}, "Largest differences"),
    table(["part", "position", ...names, "difference"], most.map((each) => [
      el("code", {}, visible(each.text)), whole(each.index), ...each.bits.map((bits) => bits === null ? "–" : number(bits)),
      signed(change(each), 2),
    ])),
  ];
}

const signed = (value, digits) => `${value < 0 ? "−" : "+"}${number(Math.abs(value), digits)}`;

/** The class of a difference in bits: fewer are `fewer-1` to 3, more are `more-1` to 3. */
function shade(bits) {
  const size = Math.abs(bits) < 0.5 ? 0 : Math.abs(bits) < 2 ? 1 : Math.abs(bits) < 4 ? 2 : 3;
  return size ? `${bits < 0 ? "fewer" : "more"}-${size}` : "even";
}

const mark = (bits) => el("span", { class: `token ${shade(bits)}` }, bits === 0 ? "0" : bits < 0 ? `−${-bits}` : `+${bits}`);

/** What both models expected in a part. */
function both(segment, sides, names) {
  return el("div", { class: "sides" }, ...sides.map((side, which) => el("section", {},
    el("h2", {}, names[which]),
    ...side.tokens.slice(...segment.tokens[which]).map(alternatives),
    segment.bits[which] === null ? el("p", { class: "soft" }, "It does not score the beginning of a text.") : "")));
}

// --- tables ---------------------------------------------------------------------------------------

function table(names, rows) {
  const isText = (cell) => cell instanceof Node;
  return el("div", { class: "scroll", tabindex: 0 }, el("table", {},
    el("thead", {}, el("tr", {}, ...names.map((name, column) =>
      el("th", { scope: "col", class: isText(rows[0]?.[column]) ? false : "number" }, name)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) =>
      el("td", { class: isText(cell) ? false : "number" }, cell)))))));
}
