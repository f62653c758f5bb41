// Write: generation token by token, the alternatives of each token, and branches.
//
// The text of a branch is a function of (ids so far, options, seed): the draw at a position depends
// on (seed, sample, position) only. So a branch is stored as ids and repeats exactly.

import { action, api, el, field, intro, notions, number, percent, roving, setProblem, stream, tokenButton, visible } from "./common.js";
import { saves } from "./picture.js";

const OPTIONS = [
  ["temperature", "Temperature", 0.8, 0, 5, 0.05],
  ["top_k", "Top-k", "", 1, 100000, 1],
  ["top_p", "Top-p", 0.95, 0, 1, 0.01],
  ["min_p", "Min-p", 0, 0, 1, 0.01],
  ["seed", "Seed", 0, 0, Number.MAX_SAFE_INTEGER, 1],
  ["max_tokens", "Tokens", 120, 1, 2000, 1],
];

const MOST_LINKED = 20; // branches
const MOST_SHOWN = 12; // alternatives, besides the drawn token
const NOTIONS = [
  ["Temperature", "Divides the scores before they become probabilities: below 1 the likely tokens become likelier, 0 always takes the likeliest."],
  ["Top-k, top-p, min-p", "Leave out unlikely tokens: all but the k likeliest; all but the smallest set with probability p; all below a share "
    + "of the likeliest one."],
  ["Seed", "Chooses the random numbers. The same seed, prompt and options give the same text, here and in tilth generate."],
  ["Branch", "The text as it would have gone on with another token in one place."],
];

export function show(main, { model, fields, remember }) {
  const prompt = el("textarea", { rows: 3, maxlength: 20000, spellcheck: "false" });
  prompt.value = fields.get("prompt") ?? "Once upon a time";
  const inputs = Object.fromEntries(OPTIONS.map(([name, , value, min, max, step]) => {
    const input = el("input", { type: "number", min, max, step, inputmode: "decimal" });
    input.value = fields.get(name) ?? value;
    return [name, input];
  }));
  const write = el("button", { type: "submit" }, "Write");
  const stop = el("button", { type: "button", class: "plain", disabled: true }, "Stop");
  const status = el("p", { class: "soft", role: "status" });
  const output = roving(el("p", { class: "text story" }));
  const legend = el("p", { class: "legend" }, "probability ",
    ...[">35%", ">12%", ">4%", ">1.6%", "less"].map((text, place) => el("span", { class: `token certain-${place}` }, text)));
  const detail = el("section", { "aria-live": "polite" });
  const branchList = el("ol", { class: "branches" });
  const branchSection = el("section", { hidden: true }, el("h2", {}, "Branches"), branchList, saves("Branches", branchList, () => [
    ["branch", "leaves branch", "at token", "tokens", "text"],
    ...branches.map(({ parent, at, tokens }, place) => [
      place, parent ? branches.indexOf(parent) : "", parent ? at : "", tokens.length, tokens.map(({ text }) => shown(text)).join("")]),
  ]));
  const coloured = el("div", { hidden: true }, legend, output);
  const textSaves = saves("Written text", coloured, () => [["token", "id", "probability"],
    ...current.tokens.map(({ id, text, logprob }) => [text, id, Math.exp(logprob)])]);
  textSaves.hidden = true;
  let branches = []; // {parent, at, promptIds, tokens: [{id, text, logprob}], reason}
  let given = {}; // the options of all branches
  let base = {}; // the fields of the address, without branches
  let current = null;
  let drawn = null; // the branch that the page shows
  let asked = null; // the place of the token whose alternatives are shown
  let abort = null;

  const options = () => {
    const found = {};
    for (const [name, input] of Object.entries(inputs)) {
      if (input.value !== "") found[name] = Number(input.value);
    }
    return found;
  };

  async function begin() {
    status.textContent = "";
    coloured.hidden = textSaves.hidden = false;
    given = options();
    base = { prompt: prompt.value, ...Object.fromEntries(Object.entries(given).map(([k, v]) => [k, String(v)])) };
    const isOfLink = Object.entries(base).every(([name, value]) => fields.get(name) === value);
    const linked = isOfLink ? fields.getAll("branch").slice(0, MOST_LINKED) : [];
    const [chosen, token] = isOfLink ? ["chosen", "token"].map((name) => fields.get(name)) : [];
    for (const name of ["branch", "chosen", "token"]) fields.delete(name); // once
    const { ids } = await api("/api/encode", { model: model(), text: prompt.value });
    branches = [];
    await grow({ parent: null, at: 0, promptIds: ids, tokens: [], reason: null });
    for (const [from, at, id] of linked.map((each) => each.split(".").map(Number))) {
      const parent = branches[from];
      if (!parent?.tokens[at - 1] || branches.at(-1).reason === null) return; // the link is another model's, or stopped
      const { tokens } = await next(parent, at - 1, id);
      const token = tokens.find((each) => each.id === id);
      if (!token) return;
      await grow(forked(parent, at - 1, token));
    }
    if (branches[chosen]) choose(branches[chosen]);
    if (token && current.tokens[token]) await explain(current, Number(token));
  }

  /** Put the branches into the address: parent, place and token of each. */
  const note = () => remember({
    ...base,
    branch: branches.slice(1).map((each) => `${branches.indexOf(each.parent)}.${each.at}.${each.tokens[each.at - 1].id}`),
    chosen: branches.length > 1 ? branches.indexOf(current) : "",
    token: asked ?? "",
  });

  /** Continue a branch, whose ids are those of the prompt and of its tokens. */
  async function grow(branch) {
    const { max_tokens: most, ...sampling } = given;
    branches.push(branch);
    choose(branch);
    const left = most - branch.tokens.length;
    if (left < 1) return;
    abort = new AbortController();
    stop.disabled = false;
    output.classList.add("writing");
    const before = branch.tokens.map((token) => token.id); // with the prompt, they may exceed the context
    const began = performance.now();
    let count = 0;
    try {
      const events = stream("/v1/completions", {
        model: model(), prompt: branch.promptIds, generated_ids: before, max_tokens: left, logprobs: 1, return_token_ids: true, stream: true, ...sampling,
      }, abort.signal);
      for await (const event of events) {
        const [choice] = event.choices;
        for (const [place, id] of (choice.token_ids ?? []).entries()) {
          const logprob = choice.logprobs.token_logprobs[place];
          branch.tokens.push({ id, text: choice.logprobs.tokens[place], logprob });
          count += 1;
        }
        if (choice.finish_reason) branch.reason = choice.finish_reason;
        if (branch === current) draw(branch);
        const seconds = (performance.now() - began) / 1000;
        status.textContent = `${count} tokens, ${number(count / seconds, 0)} tokens a second`;
      }
      const ends = { stop: "at the end token", length: "after the given number of tokens" };
      status.textContent += `; stopped ${ends[branch.reason] ?? ""}.`;
    } catch (error) {
      if (error.name !== "AbortError") throw error;
      status.textContent += "; stopped by you.";
    } finally {
      stop.disabled = true;
      output.classList.remove("writing");
      abort = null;
      drawBranches();
    }
  }

  function choose(branch) {
    current = branch;
    asked = null;
    note();
    output.querySelector(".chosen")?.classList.remove("chosen");
    detail.replaceChildren();
    draw(branch);
    drawBranches();
  }

  /** Draw the tokens of a branch that are not there yet. */
  function draw(branch) {
    if (drawn !== branch) output.replaceChildren(el("span", { class: "prompt" }, base.prompt));
    drawn = branch;
    for (let place = output.children.length - 1; place < branch.tokens.length; place++) {
      const { text, logprob } = branch.tokens[place];
      const style = `certain-${certainty(logprob)}${place === branch.at - 1 && branch.parent ? " fork" : ""}`;
      output.append(tokenButton(shown(text), style, `probability ${percent(Math.exp(logprob))}`,
        () => explain(branch, place).catch((error) => setProblem(error.message))));
    }
  }

  function next(branch, place, token) {
    const ids = [...branch.promptIds, ...branch.tokens.slice(0, place).map((each) => each.id)];
    const { max_tokens: _, ...sampling } = given;
    return api("/api/next", { model: model(), ids, token, sampling });
  }

  async function explain(branch, place) {
    const own = branch.tokens[place];
    const found = await next(branch, place, own.id);
    asked = place;
    note();
    output.querySelector(".chosen")?.classList.remove("chosen");
    output.children[place + 1]?.classList.add("chosen");
    const name = (each) => each.is_end ? "end of text" : visible(each.text);
    const bar = (label, probability) => el("td", { class: "bar" },
      el("meter", { min: 0, max: 1, value: probability, "aria-label": label }),
      el("span", {}, probability ? percent(probability) : "–"));
    const shownTokens = found.tokens.filter((each, rank) => rank < MOST_SHOWN || each.id === own.id);
    const rows = shownTokens.map((each) => el("tr", { class: each.id === own.id ? "drawn" : false },
      el("td", {}, el("code", {}, name(each))), bar("before", each.probability), bar("after", each.after),
      el("td", {}, each.id === own.id ? "drawn" : each.is_end ? "" : el("button", {
        type: "button", class: "plain small", "aria-label": `Branch with ${name(each)}`, onclick: () => fork(branch, place, each),
      }, "Branch"))));
    const table = el("table", { class: "alternatives" },
      el("thead", {}, el("tr", {}, ...["token", "model", "after the options", ""].map((each) =>
        el(each ? "th" : "td", each ? { scope: "col" } : {}, each)))),
      el("tbody", {}, ...rows));
    detail.replaceChildren(
      el("h2", {}, "Instead of ", el("code", {}, visible(shown(own.text)))),
      el("p", { class: "soft" }, `${found.kept === 1 ? "One token is" : `${found.kept.toLocaleString("en")} tokens are`} left after `
        + "temperature, top-k, top-p and min-p. Branch continues the text with another one."),
      el("div", { class: "scroll", tabindex: 0 }, table),
      saves("Alternatives", table, () => [["token", "id", "probability", "after the options"],
        ...found.tokens.map((each) => [name(each), each.id, each.probability, each.after])]),
    );
  }

  const forked = (branch, place, token) => ({
    parent: branch,
    at: place + 1,
    promptIds: branch.promptIds,
    tokens: [...branch.tokens.slice(0, place), { id: token.id, text: token.text, logprob: Math.log(token.probability) }],
    reason: null,
  });
  function fork(branch, place, token) {
    if (abort) setProblem("A text is being written; stop it, or wait for its end.");
    else action(write, () => grow(forked(branch, place, token)))();
  }

  /** The tree of branches: each below the one that it left. */
  function drawBranches() {
    branchSection.hidden = branches.length < 2;
    const item = (branch) => {
      const from = branch.parent ? `Token ${branch.at}: ` : "";
      const text = branch.tokens.slice(Math.max(0, branch.at - 1)).map((token) => shown(token.text)).join("");
      const own = branches.filter((each) => each.parent === branch);
      return el("li", {}, el("button", {
        type: "button", class: "plain pictured", "aria-pressed": String(branch === current), onclick: () => choose(branch),
      }, `${from}${[...text].slice(0, 60).join("")}…`), own.length ? el("ol", {}, ...own.map(item)) : "");
    };
    branchList.replaceChildren(...branches.slice(0, 1).map(item));
  }

  stop.addEventListener("click", () => abort?.abort());
  main.append(
    ...intro("Write", "The model continues a text, one token at a time, each drawn by its probability. Choose "
      + "a token to see what else could have come, and to branch. Equal seeds repeat exactly."),
    notions(NOTIONS, "generation.md"),
    el("form", { onsubmit: action(write, begin) },
      field("Prompt", prompt),
      el("div", { class: "options" }, ...OPTIONS.map(([name, label]) => field(label, inputs[name]))),
      el("div", { class: "row" }, write, stop)),
    status, coloured, textSaves, el("div", { class: "sides" }, detail, branchSection),
  );
  return () => abort?.abort();
}

const shown = (text) => text.startsWith("bytes:") ? "�" : text;
/** The number of a colour: a step for 1.5 bits, as 2 ** -1.5 is 35%. */
const certainty = (logprob) => Math.min(4, Math.floor(-logprob / Math.LN2 / 1.5));
