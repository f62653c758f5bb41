// Time: a prompt and a text over the checkpoints of a run.
//
// Each checkpoint is asked for once and kept in the page; moving the slider computes nothing. The
// checkpoint that is looked at comes first.

import { chart } from "./chart.js";
import { action, api, el, field, intro, notions, number, setProblem, swatch, tick, totals, whole } from "./common.js";
import { alternatives, surprise } from "./read.js";

const OPTIONS = [
  ["max_tokens", "Tokens", 60, 1, 300, 1],
  ["temperature", "Temperature", 0.8, 0, 5, 0.05],
  ["top_p", "Top-p", 0.95, 0, 1, 0.01],
  ["seed", "Seed", 0, 0, Number.MAX_SAFE_INTEGER, 1],
];
const NOTIONS = [
  ["Checkpoint", "The weights after a step of the training. A run keeps a few; with --watch.weights-per-doubling 2, also those of "
    + "steps 0, 1, 2, 3, 4, 6, 8, 12, 16 and so on, as a model learns most at the beginning."],
  ["Bits per byte", "The surprise of the model about a text, in bits, divided by the bytes of the text. Fewer are better; it does not "
    + "depend on the tokenizer."],
  ["Validation set", "Text of the data that the training does not see; its line comes from the log of the run."],
  ["Seed", "The random numbers of the continuation. All checkpoints have the same, so texts differ by the weights alone."],
];
const MILLISECONDS = 900; // of a checkpoint, while the slider plays

export function show(main, { model, fields, remember }) {
  const prompt = el("input", { type: "text", maxlength: 4000, spellcheck: "false" });
  prompt.value = fields.get("prompt") ?? "Once upon a time";
  const text = el("textarea", { rows: 3, maxlength: 4000, spellcheck: "false" });
  text.value = fields.get("text") ?? "Once upon a time, there was a little girl named Lily. She loved to play in the garden.";
  const inputs = Object.fromEntries(OPTIONS.map(([name, , value, min, max, step]) => {
    const input = el("input", { type: "number", min, max, step, inputmode: "decimal" });
    input.value = fields.get(name) ?? value;
    return [name, input];
  }));
  const button = el("button", { type: "submit" }, "Read and write");
  const stop = el("button", { type: "button", class: "plain", disabled: true, onclick: () => abort?.abort() }, "Stop");
  const status = el("p", { class: "soft", role: "status" });
  const play = el("button", { type: "button", class: "plain", onclick: () => toggle() }, "Play");
  const slider = el("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Checkpoint" });
  const ends = el("div", { class: "ends soft" });
  const moment = el("section", { class: "moment" });
  const detail = el("div", { "aria-live": "polite" });
  const isLog = el("input", { type: "checkbox" });
  isLog.checked = fields.get("axis") !== "linear";
  const curve = chart({ title: "Bits per byte over the training", file: "bits-per-byte-over-time" });
  const lines = el("ul", { class: "lines" });
  const shown = el("div", { hidden: true },
    el("div", { class: "row controls timeline" }, play, slider), ends, moment,
    el("div", { class: "row tools" }, tick("log steps", isLog)), curve.element, lines);
  const moments = new Map(); // by step
  let run = { steps: [], valid: { x: [], y: [] } };
  let asked = null; // what the moments answer
  let token = fields.get("token"); // the place of the chosen one in the text
  let abort = null;
  let timer = 0;

  const step = () => run.steps[Number(slider.value)];
  const note = () => remember({
    ...asked?.fields, ...(asked ? {} : formFields()), at: String(step() ?? ""), axis: isLog.checked ? "" : "linear",
    token: token ?? "",
  });

  function formFields() {
    const options = Object.entries(inputs).filter(([, input]) => input.value !== "").map(([name, input]) => [name, input.value]);
    return { prompt: prompt.value, text: text.value, ...Object.fromEntries(options) };
  }

  async function compute() {
    const found = formFields();
    if (found.text !== (asked?.fields.text ?? fields.get("text"))) token = null;
    const { max_tokens: most, ...sampling } = Object.fromEntries(
      Object.keys(inputs).filter((name) => name in found).map((name) => [name, Number(found[name])]));
    asked = { fields: found, body: { model: model(), prompt: prompt.value, text: text.value, max_tokens: most, sampling } };
    moments.clear();
    note();
    draw();
    abort = new AbortController();
    stop.disabled = false;
    try {
      for (let next = wanted(); next !== undefined; next = wanted()) {
        status.textContent = `${moments.size} of ${run.steps.length} checkpoints; step ${whole(next)} is read.`;
        moments.set(next, await api("/api/time", { ...asked.body, step: next }, abort.signal));
        draw();
      }
      status.textContent = `${whole(moments.size)} checkpoints.`;
    } catch (error) {
      status.textContent = `${moments.size} of ${run.steps.length} checkpoints${error.name === "AbortError" ? "; stopped by you." : "."}`;
      throw error;
    } finally {
      stop.disabled = true;
      abort = null;
    }
  }

  /** The checkpoint that is looked at, then the last one, then the others from the first. */
  const wanted = () => [step(), run.steps.at(-1), ...run.steps].find((each) => each !== undefined && !moments.has(each));

  function draw() {
    drawMoment();
    drawCurve();
  }

  function drawMoment() {
    const now = step();
    const found = moments.get(now);
    slider.setAttribute("aria-valuetext", `step ${whole(now)}`);
    detail.replaceChildren();
    const tokens = now * run.tokens_per_step;
    moment.replaceChildren(
      el("h2", {}, `Step ${whole(now)}`, el("small", {}, ` of ${whole(run.total)} · `
        + (tokens ? `${whole(tokens)} training tokens` : "random weights"))),
      ...(found ? [
        el("div", { class: "sides" },
          el("section", {}, el("h3", {}, "It continues the prompt"),
            el("p", { class: "text story" }, el("span", { class: "prompt" }, asked.body.prompt), found.written ?? "")),
          el("section", {}, el("h3", {}, "It reads the text"),
            totals([
              ["bits per byte", found.read.bits_per_byte === null ? "–" : number(found.read.bits_per_byte, 4)],
              ["perplexity", found.read.perplexity === null ? "–" : number(found.read.perplexity)],
              ["bits", number(found.read.bits, 1)],
            ]),
            ...surprise(found.read.tokens, (place) => {
              token = String(place);
              note();
              detail.replaceChildren(alternatives(found.read.tokens[place]));
            }, token),
            detail)),
      ] : [el("p", { class: "soft" }, asked ? "This checkpoint has not been read yet." : "Press “Read and write”.")]));
  }

  async function drawCurve() {
    const steps = run.steps.filter((each) => moments.has(each));
    const bits = steps.map((each) => moments.get(each).read.bits_per_byte);
    const now = moments.get(step());
    await curve.draw([
      { name: "this text", index: 0, mode: "lines+markers", x: steps, y: bits },
      { name: "validation set", index: 1, mode: "lines+markers", x: run.valid.x, y: run.valid.y },
      ...(now ? [{
        x: [step()], y: [now.read.bits_per_byte], index: 0, mode: "markers", hoverinfo: "skip",
        marker: { size: 15, symbol: "circle-open", line: { width: 3 } },
      }] : []),
    ], { x: { title: "step", ...(isLog.checked ? { type: "log", dtick: "D2" } : { type: "linear" }) }, y: { title: "bits per byte", rangemode: "tozero" } });
    curve.caption("Choose a point to go to its checkpoint."
      + (isLog.checked && run.steps[0] === 0 ? " A logarithmic axis has no step 0; the slider and the CSV have it." : ""));
    if (curve.plot.on && !curve.plot.dataset.listens) {
      curve.plot.dataset.listens = "true";
      curve.plot.on("plotly_click", ({ points: [point] }) => to(run.steps.indexOf(point.x)));
    }
  }

  function to(place) {
    if (place < 0 || place >= run.steps.length) return;
    slider.value = place;
    note();
    draw();
  }

  function toggle() {
    if (timer) return pause();
    if (Number(slider.value) === run.steps.length - 1) to(0);
    play.textContent = "Pause";
    timer = setInterval(() => {
      if (!slider.isConnected || Number(slider.value) === run.steps.length - 1) pause();
      else if (moments.has(run.steps[Number(slider.value) + 1]) || !abort) to(Number(slider.value) + 1);
    }, MILLISECONDS);
  }

  function pause() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  }

  slider.addEventListener("input", () => {
    pause();
    to(Number(slider.value));
  });
  slider.addEventListener("keydown", (event) => {
    if (event.key !== " ") return;
    event.preventDefault();
    toggle();
  });
  isLog.addEventListener("change", () => {
    note();
    drawCurve();
  });
  main.append(
    ...intro("Time", "One prompt and one text over the checkpoints of a run: what the model wrote, and what surprised it, at each "
      + "moment of its training."),
    notions(NOTIONS, "training.md", "generation.md"),
    el("form", { onsubmit: action(button, compute) },
      field("Prompt, to continue", prompt), field("Text, to read", text),
      el("div", { class: "options" }, ...OPTIONS.map(([name, label]) => field(label, inputs[name]))),
      el("div", { class: "row" }, button, stop)),
    status, shown);

  (async () => {
    try {
      run = await api("/api/steps", { model: model() });
    } catch (error) {
      setProblem(error.message);
      return;
    }
    button.disabled = !run.steps.length;
    if (!run.steps.length) {
      status.textContent = "This run has no checkpoint yet.";
      return;
    }
    if (run.steps.length < 4) {
      status.replaceChildren(`This run has ${run.steps.length === 1 ? "one checkpoint" : `${run.steps.length} checkpoints`}. Train with `,
        el("code", {}, "--watch.weights-per-doubling 2"), " to keep more of them.");
    }
    slider.max = run.steps.length - 1;
    const place = run.steps.indexOf(Number(fields.get("at") || NaN));
    slider.value = place < 0 ? run.steps.length - 1 : place;
    ends.replaceChildren(...[run.steps[0], run.steps.at(-1)].map((each) => el("span", {}, `step ${whole(each)}`)));
    lines.replaceChildren(...["this text", "validation set"].map((name, index) => el("li", {}, swatch(index), name)));
    shown.hidden = false;
    draw();
  })();
  return () => {
    abort?.abort();
    pause();
  };
}
