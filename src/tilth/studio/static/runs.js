// Runs: a table of all runs, and the curves, differences, norms and samples of the chosen ones.
//
// The server keeps the whole logs and sends few points: the minimum and the maximum of each part of
// the axis. A zoom asks again, with more points there. While a training runs, new curves arrive as
// server-sent events.

import { api, copyable, el, field, intro, notions, setProblem, stream, swatch } from "./common.js";
import { chart, lineStyle, loadPlotly } from "./chart.js";
import { drawLab } from "./labs.js";

const MOST = 20; // runs in a comparison
const AT_FIRST = 5;
const VALUES = {
  loss: "Loss (nats per token)",
  valid_loss: "Validation loss (nats per token)",
  bits_per_byte: "Validation bits per byte",
  lr: "Learning rate",
  grad_norm: "Gradient norm",
  tokens_per_second: "Tokens per second",
  utilisation: "Utilisation",
  step_seconds: "Seconds per step",
};
const AXES = {
  step: "Steps", tokens: "Training tokens", flops: "Training FLOPs", seconds: "Training time (seconds)",
};
const SMOOTHINGS = [1, 10, 50, 200, 1000, 5000];
const NOTIONS = [
  ["Loss", "how surprised the model is by the next token of the training text, on average, in nats. Lower is better."],
  ["Bits per byte", "the same on text that was held out, per byte instead of per token, so that tokenizers compare."],
  ["FLOPs", "multiplications and additions of the training so far: the cost that does not depend on the machine."],
  ["Smoothing", "the mean over the last steps. It looks back only, so a curve does not change when the training goes on; "
    + "the band behind it spans the lowest to the highest value."],
  ["Norms", "root mean squares of activations, weights and gradients. They show instability before the loss does."],
];

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const whole = (value) => value.toLocaleString("en", { maximumFractionDigits: 0 });
const fixed = (value) => value.toFixed(4);

function flops(value) {
  const names = ["", "k", "M", "G", "T", "P", "E", "Z"];
  const place = value < 1 ? 0 : Math.min(names.length - 1, Math.floor(Math.log10(value) / 3));
  return `${(value / 1000 ** place).toPrecision(3)} ${names[place]}FLOP`;
}

function duration(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h ${Math.round(seconds % 3600 / 60)} min`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

function ago(seconds) {
  if (seconds < 10) return "now";
  const [size, name] = [[86400, "days"], [3600, "h"], [60, "min"], [1, "s"]].find(([size]) => seconds >= size);
  return `${Math.floor(seconds / size)} ${name} ago`;
}

const share = (row) => row.steps ? row.step / row.steps : 0;
// A column: heading, value to sort by, cell, and whether it is a number.
const COLUMNS = {
  id: ["Run", (row) => row.id],
  state: ["State", (row) => row.state, (row) => el("span", { class: `state state-${row.state}` }, row.state)],
  progress: ["Progress", share, (row) => el("span", { class: "progress" },
    el("progress", { max: 1, value: share(row), "aria-label": `Progress of ${row.id}` }),
    `${whole(row.step)} of ${whole(row.steps)}`)],
  loss: ["Loss", (row) => row.loss, fixed],
  valid_loss: ["Validation", (row) => row.valid_loss, fixed],
  bits_per_byte: ["Bits/byte", (row) => row.bits_per_byte, fixed],
  tokens_per_second: ["Tokens/s", (row) => row.tokens_per_second, whole],
  seconds: ["Time", (row) => row.seconds, duration],
  flops: ["Cost", (row) => row.flops, flops],
  parameters: ["Parameters", (row) => row.parameters, (value) => compact.format(value)],
  active: ["Last step", (row) => row.active, (value) => ago(Date.now() / 1000 - value)],
};
const TEXTS = ["id", "state", "progress"];

export function show(main, { folder, fields, remember }) {
  loadPlotly();
  const rows = new Map(); // id -> row of the table
  const data = new Map(); // id -> {curve, valid, samples, problem}
  const slots = new Map(); // id -> number of its line: a run keeps its colour
  /** The range of an axis in a link; null for all. */
  function rangeOf(...names) {
    const ends = names.map((name) => fields.get(name) ? Number(fields.get(name)) : NaN);
    return ends.every(Number.isFinite) ? ends : null;
  }
  const options = {
    value: fields.get("value") in VALUES ? fields.get("value") : "loss",
    axis: fields.get("x") in AXES ? fields.get("x") : "step",
    smoothing: SMOOTHINGS.includes(Number(fields.get("smooth"))) ? Number(fields.get("smooth")) : null,
    isLogX: fields.get("logx") === "1",
    isLogY: fields.get("logy") === "1",
    range: rangeOf("from", "to"),
    yRange: rangeOf("bottom", "top"),
    drag: fields.get("drag") === "pan" ? "pan" : "zoom",
    sort: fields.get("sort") ?? "-active",
    state: fields.get("state") ?? "",
    filter: fields.get("filter") ?? "",
    lab: fields.get("lab") ?? "",
  };
  let normChoice = Object.fromEntries(["norms", "of", "part"].map((name) => [name, fields.get(name) ?? ""])); // run, kind, part
  let since = 0;
  let abort = null;
  let isLeft = false;

  const chosen = () => [...slots.keys()];
  function add(id) {
    const taken = new Set(slots.values());
    slots.set(id, [...Array(MOST).keys()].find((slot) => !taken.has(slot)));
  }

  function leaveOut(id) {
    slots.delete(id);
    data.delete(id);
  }

  function choose(id, isChosen) {
    if (!isChosen) leaveOut(id);
    else if (slots.size < MOST) add(id);
    else setProblem(`A comparison has at most ${MOST} runs; leave one out first.`);
    changed();
  }

  /** Choose these runs instead. */
  function chooseOnly(ids) {
    chosen().filter((id) => !ids.includes(id)).forEach(leaveOut);
    ids.filter((id) => !slots.has(id)).forEach(add);
    changed();
  }

  function save() {
    const [from, to] = options.range ?? ["", ""];
    const [bottom, top] = options.yRange ?? ["", ""];
    remember({
      run: chosen(), value: options.value === "loss" ? "" : options.value, x: options.axis === "step" ? "" : options.axis,
      smooth: options.smoothing ?? "", logx: options.isLogX ? "1" : "", logy: options.isLogY ? "1" : "",
      from, to, bottom, top, drag: options.drag === "zoom" ? "" : options.drag, sort: options.sort === "-active" ? "" : options.sort, state: options.state, filter: options.filter,
      lab: options.lab, ...normChoice,
    });
  }

  let waiting = null;
  /** The choice of runs or of an axis has changed. */
  function changed({ isComparison = true } = {}) {
    save();
    drawTable();
    draw();
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      watch();
      if (isComparison) compare();
    }, 120);
  }

  // --- the table ---------------------------------------------------------------------------------

  const filter = el("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter by name" });
  filter.value = options.filter;
  filter.addEventListener("input", () => {
    options.filter = filter.value;
    save();
    drawTable();
  });
  const states = select(["", "running", "finished", "stopped", "damaged"], (state) => state || "all states", options.state, (state) => {
    options.state = state;
    save();
    drawTable();
  });
  states.setAttribute("aria-label", "State");
  const labChoice = select([], String, "", (id) => {
    options.lab = id;
    save();
    drawTable();
    loadLab();
  });
  labChoice.setAttribute("aria-label", "Lab");
  labChoice.hidden = true;
  const labPlace = el("section", { class: "lab", hidden: true });
  let labContent = ""; // that is drawn
  const isOfLab = (id) => !options.lab || options.lab === folder.name || id.startsWith(`${options.lab}/`);

  function offerLabs(labs) {
    if (!labs.includes(options.lab)) options.lab = "";
    if (labs.join("/") === [...labChoice.options].slice(1).map((each) => each.value).join("/")) return;
    labChoice.replaceChildren(...["", ...labs].map((id) => el("option", { value: id }, id || "all labs")));
    labChoice.value = options.lab;
    labChoice.hidden = !labs.length;
  }

  async function loadLab() {
    labPlace.hidden = !options.lab;
    if (!options.lab) return;
    try {
      const found = await api("/api/lab", { lab: options.lab });
      const content = JSON.stringify(found);
      if (isLeft || found.id !== options.lab || content === labContent) return;
      labContent = content;
      await drawLab(labPlace, found);
    } catch (error) {
      setProblem(error.message);
    }
  }

  let shownIds = [];
  const all = el("button", { type: "button", class: "plain", onclick: () => chooseOnly(shownIds.slice(0, MOST)) });
  const clear = el("button", { type: "button", class: "plain", onclick: () => chooseOnly([]) }, "Choose none");
  const count = el("span", { class: "soft", role: "status" });
  const head = el("tr", {}, el("td", {}), ...Object.entries(COLUMNS).map(([name, [title]]) => el("th", {
    scope: "col", "data-column": name, class: TEXTS.includes(name) ? false : "number",
  }, el("button", { type: "button", class: "sort", onclick: () => {
    options.sort = options.sort === name ? `-${name}` : name;
    save();
    drawTable();
  } }, title))));
  const body = el("tbody", {});
  const lines = new Map(); // id -> {row, element}

  function lineOf(row) {
    const known = lines.get(row.id);
    if (known?.row === row) return known;
    const box = el("input", { type: "checkbox", "aria-label": `Compare ${row.id}` });
    box.addEventListener("change", () => choose(row.id, box.checked));
    const cells = row.problem !== undefined
      ? [el("th", { scope: "row", title: row.id }, row.id), el("td", {}, COLUMNS.state[2](row)), el("td", { colspan: 9, class: "soft problem" }, row.problem)]
      : Object.entries(COLUMNS).map(([name, [, value, shown]]) => {
        if (name === "id") return el("th", { scope: "row", title: row.id }, row.id);
        const found = value(row);
        const cell = TEXTS.includes(name) ? shown(row) : found === null || found === undefined ? "–" : shown(found);
        return el("td", { class: TEXTS.includes(name) ? false : "number" }, cell);
      });
    const line = { row, box, element: el("tr", { onclick: (event) => {
      if (!event.target.closest("input, a, button")) box.click();
    } }, el("td", {}, box), ...cells) };
    lines.set(row.id, line);
    return line;
  }

  function drawTable() {
    const isDown = options.sort.startsWith("-");
    const column = options.sort.replace(/^-/, "");
    const [, value] = COLUMNS[column] ?? COLUMNS.active;
    const wanted = options.filter.toLowerCase();
    const shown = [...rows.values()]
      .filter((row) => row.id.toLowerCase().includes(wanted) && (!options.state || row.state === options.state) && isOfLab(row.id));
    shown.sort((a, b) => {
      const [one, other] = [value(a) ?? null, value(b) ?? null];
      if (one === null || other === null) return (one === null) - (other === null);
      const order = typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other;
      return isDown ? -order : order;
    });
    for (const heading of head.querySelectorAll("th")) {
      if (heading.dataset.column === column) heading.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      else heading.removeAttribute("aria-sort");
    }
    const elements = shown.map((row) => {
      const { box, element } = lineOf(row);
      box.checked = slots.has(row.id);
      element.classList.toggle("chosen-row", box.checked);
      box.style.accentColor = box.checked ? `var(--line-${slots.get(row.id) % 10})` : "";
      return element;
    });
    if (elements.length !== body.children.length || elements.some((element, place) => element !== body.children[place])) {
      body.replaceChildren(...elements);
    }
    count.textContent = `${whole(shown.length)} of ${whole(rows.size)} runs, ${slots.size} chosen`;
    shownIds = shown.filter((row) => row.problem === undefined).map(({ id }) => id);
    all.textContent = shownIds.length > MOST ? `Choose the first ${MOST}` : "Choose all";
    all.disabled = !shownIds.length;
    clear.disabled = !slots.size;
  }

  function takeTable(table) {
    since = table.time;
    offerLabs(table.labs);
    for (const row of table.rows) rows.set(row.id, row);
    const ids = new Set(table.ids);
    for (const id of rows.keys()) if (!ids.has(id)) rows.delete(id);
    drawTable();
    if (options.lab && table.rows.some(({ id }) => isOfLab(id))) loadLab();
  }

  // --- curves ------------------------------------------------------------------------------------

  const curves = chart({ title: "Curves", file: "curves", rows: curveRows });
  const legend = el("ul", { class: "lines" });
  const control = (name, choices, label) => select(choices, label, options[name], (value) => {
    options[name] = value;
    if (name === "axis") options.range = null;
    if (name === "value") options.yRange = null;
    changed({ isComparison: false });
  });
  const tick = (name, label) => {
    const box = el("input", { type: "checkbox" });
    box.checked = options[name];
    box.addEventListener("change", () => {
      options[name] = box.checked;
      changed({ isComparison: false });
    });
    return el("label", { class: "tick" }, box, label);
  };
  const smoothing = control("smoothing", SMOOTHINGS, (steps) => steps === 1 ? "none" : `last ${whole(steps)} steps`);
  const drag = select(["zoom", "pan"], (mode) => mode === "zoom" ? "zooms" : "moves", options.drag, (mode) => {
    options.drag = mode;
    save();
    draw();
  });
  const move = (label, title, change) => el("button", { type: "button", class: "plain small", "aria-label": title, title, onclick: () => change() }, label);
  const wholeRange = move("Whole range", "Show the whole range", () => zoom(null, null));

  /** Change the range by shares of its width, as the keyboard does. */
  function shift(left, right) {
    const axis = curves.plot.layout?.xaxis;
    if (!axis) return;
    const width = axis.range[1] - axis.range[0];
    const range = [axis.range[0] + left * width, axis.range[1] + right * width];
    zoom(axis.type === "log" ? range.map((value) => 10 ** value) : range);
  }

  /** Show a range of each axis: [from, to], null for all, or undefined for that before. */
  function zoom(x, y) {
    if (x !== undefined) options.range = x;
    if (y !== undefined) options.yRange = y;
    changed({ isComparison: false });
  }

  curves.onzoom(zoom);

  function draw() {
    if (drawing) return;
    drawing = requestAnimationFrame(() => {
      drawing = null;
      drawCurves();
    });
  }
  let drawing = null;

  function drawCurves() {
    const traces = [];
    for (const [id, index] of slots) {
      const found = data.get(id);
      if (!found?.curve) continue;
      const { curve, valid } = found;
      if (curve.low?.length) {
        traces.push({
          x: [...curve.at, ...curve.at.toReversed()], y: [...curve.high, ...curve.low.toReversed()], fill: "toself",
          fillcolor: `${lineStyle(index).color}80`, opacity: 0.35, hoverinfo: "skip",
          line: { width: 0.7, color: lineStyle(index).color },
        });
      }
      traces.push({ name: id, index, x: curve.x, y: curve.y, mode: curve.x.length < 60 ? "lines+markers" : "lines",
        line: { width: valid?.x.length ? 1.3 : 1.8 }, marker: { size: 5 } });
      if (valid?.x.length) {
        traces.push({ name: `${id}, validation`, index, x: valid.x, y: valid.y, mode: "lines+markers",
          line: { width: 2.4, dash: "solid" }, marker: { size: 5 }, showlegend: false });
      }
    }
    const rangeIn = (range, isLog) => range
      ? { range: isLog ? range.map((value) => Math.log10(Math.max(value, 1e-9))) : range } : { autorange: true };
    curves.draw(traces, {
      x: { title: AXES[options.axis], type: options.isLogX ? "log" : "linear", ...rangeIn(options.range, options.isLogX) },
      y: { title: VALUES[options.value], type: options.isLogY ? "log" : "linear", ...rangeIn(options.yRange, options.isLogY) },
      dragmode: options.drag,
      uirevision: [options.value, options.axis, options.isLogX, options.isLogY, options.range === null, options.yRange === null].join(),
    }).catch((error) => setProblem(error.message));
    curves.caption(!slots.size ? "Choose runs in the table to draw their curves."
      : (options.smoothing > 1 ? `Lines: mean of the last ${whole(options.smoothing)} steps. Bands: lowest to highest value. ` : "")
        + (options.value === "loss" ? "Thick lines with dots: validation. " : "")
        + "Drag to zoom, double-click for the whole range.");
    for (const item of [...legend.children]) if (!slots.has(item.dataset.run)) item.remove();
    for (const [id, index] of slots) drawLine(id, index);
  }

  /** The line of a run in the legend: updated in place, as a person may be about to press its button. */
  function drawLine(id, index) {
    let item = [...legend.children].find((each) => each.dataset.run === id);
    if (!item) {
      item = el("li", { "data-run": id }, swatch(index), el("span", {}, id), el("span", { class: "soft" }),
        el("button", { type: "button", class: "cross", "aria-label": `Leave out ${id}`, onclick: () => choose(id, false) }, "×"));
      legend.append(item);
    }
    const found = data.get(id);
    const last = found?.curve?.y.findLast((value) => value !== null);
    item.classList.toggle("is-damaged", Boolean(found?.problem));
    item.children[2].textContent = found?.problem ?? (last === undefined ? found?.curve ? "no values" : "…" : shortly(last));
  }

  function curveRows() {
    const table = [["run", "curve", options.axis, options.value]];
    for (const id of slots.keys()) {
      const { curve, valid } = data.get(id) ?? {};
      const add = (name, x, y) => x?.forEach((at, place) => table.push([id, name, at, y[place]]));
      add(options.smoothing > 1 ? `mean of ${options.smoothing} steps` : "value", curve?.x, curve?.y);
      add("minimum", curve?.at, curve?.low ?? []);
      add("maximum", curve?.at, curve?.high ?? []);
      add("validation", valid?.x, valid?.y);
    }
    return table;
  }

  // --- what comes from the server ----------------------------------------------------------------

  async function watch() {
    abort?.abort();
    const own = abort = new AbortController();
    let hasFailed = false;
    while (!own.signal.aborted && !document.hidden && !isLeft) {
      const [begin, end] = options.range ?? [null, null];
      const width = Math.min(1200, Math.max(200, Math.round(curves.plot.clientWidth / 2.5) || 400));
      try {
        const asked = {
          runs: chosen(), metric: options.value, axis: options.axis, smoothing: options.smoothing, since,
          window: { begin, end, points: width, is_log: options.isLogX },
        };
        for await (const event of stream("/api/runs/watch", asked, own.signal)) {
          if (hasFailed) setProblem("");
          hasFailed = false;
          if (event.table) takeTable(event.table);
          else take(event);
        }
      } catch (error) {
        if (own.signal.aborted) return;
        hasFailed = true;
        setProblem(error.message);
      }
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }

  function take({ run, ...news }) {
    if (!slots.has(run)) return;
    const found = { ...data.get(run), ...news };
    if (news.curve && !news.valid) delete found.valid;
    data.set(run, found);
    if (news.curve || news.problem) draw();
    if (news.samples) drawSamples();
    if (news.norms !== undefined && (run !== normRun.value || news.norms !== normCount)) offerNorms();
  }

  const onVisible = () => document.hidden ? abort?.abort() : watch();
  document.addEventListener("visibilitychange", onVisible);

  // --- differences and commands ------------------------------------------------------------------

  const comparison = el("section", {});
  const repetition = el("section", {});
  async function compare() {
    const runs = chosen().filter((id) => rows.get(id)?.problem === undefined);
    drawSamples();
    offerNorms();
    if (!runs.length) {
      comparison.replaceChildren();
      repetition.replaceChildren();
      return;
    }
    try {
      const found = await api("/api/runs/compare", { runs });
      if (!isLeft) drawComparison(runs, found);
    } catch (error) {
      setProblem(error.message);
    }
  }

  function drawComparison(runs, { differences, configs, commands }) {
    const named = (id) => el("th", { scope: "col", class: "cut", title: id }, id);
    const table = (headings, lines) => el("div", { class: "scroll", tabindex: 0 }, el("table", {},
      el("thead", {}, el("tr", {}, ...headings)), el("tbody", {}, ...lines)));
    const lines = differences.map(({ name, values }) => el("tr", {}, el("th", { scope: "row" }, el("code", {}, name)),
      ...values.map((value) => el("td", {}, value))));
    const fold = (id, pairs) => el("details", {}, el("summary", {}, `Config of ${id}`),
      el("dl", { class: "config" }, ...pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))));
    comparison.replaceChildren(
      ...(runs.length > 1 ? [
        el("h2", {}, "Differences of the configs"),
        lines.length ? table([el("td", {}), ...runs.map(named)], lines) : el("p", { class: "soft" }, "The configs are equal."),
      ] : []));
    repetition.replaceChildren(
      el("h2", {}, "Repeat"),
      el("p", { class: "soft" }, "Each command repeats a run, in the folder where the studio was started."),
      ...commands.map((command, place) => copyable(command, `the command of ${runs[place]}`)),
      ...runs.map((id, place) => fold(id, configs[place])));
  }

  // --- norms -------------------------------------------------------------------------------------

  const norms = chart({ title: "Norms by layer", file: "norms" });
  const chooseNorms = () => {
    normChoice = { norms: normRun.value, of: normKind.value, part: normPart.value };
    save();
    loadNorms();
  };
  const normRun = select([], String, "", chooseNorms);
  const normKind = select([], String, "", chooseNorms);
  const normPart = select([], String, "", chooseNorms);
  const normSection = el("section", { hidden: true }, el("h2", {}, "Norms"),
    el("div", { class: "row" }, field("Run", normRun), field("Of", normKind), field("Part", normPart)), norms.element);
  let normCount = 0;

  /** Offer the chosen runs that have norms, and show those of one. */
  function offerNorms() {
    const runs = chosen().filter((id) => data.get(id)?.norms);
    const before = normRun.value;
    if (runs.join() !== [...normRun.options].map((each) => each.value).join()) setOptions(normRun, runs, normChoice.norms || before);
    if (normRun.selectedIndex < 0) normRun.value = runs[0] ?? "";
    if (normRun.value !== before || data.get(before)?.norms !== normCount) loadNorms();
  }

  async function loadNorms() {
    const run = normRun.value;
    if (!run) {
      normSection.hidden = true;
      return;
    }
    const asked = { run, kind: normChoice.of || "activations", part: normChoice.part };
    const found = await api("/api/runs/norms", asked).catch(() => null);
    if (!found || isLeft || run !== normRun.value) return;
    normCount = data.get(run)?.norms ?? 0;
    normSection.hidden = !found.lines.length;
    if (!found.lines.length) return;
    setOptions(normKind, found.kinds, found.kind);
    setOptions(normPart, found.parts, found.part);
    const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
    const hue = (place) => Math.round(255 - 225 * (found.lines.length > 1 ? place / (found.lines.length - 1) : 0));
    norms.draw(found.lines.map((line, place) => ({
      name: line.layer === null ? found.part : `layer ${line.layer}`, x: found.steps, y: line.values,
      mode: found.steps.length < 30 ? "lines+markers" : "lines", marker: { size: 5 },
      line: { color: `hsl(${hue(place)}, ${isDark ? 75 : 65}%, ${isDark ? 68 : 42}%)` },
    })), {
      x: { title: "Steps" }, y: { title: "Root mean square", type: "log" }, showlegend: found.lines.length > 1 && found.lines.length <= 24,
      legend: { orientation: "h", y: -0.25, yanchor: "top" }, uirevision: [run, found.kind, found.part].join(),
    });
    norms.caption(`Root mean square of ${found.kind}, ${found.part === "layer" ? "output of each layer" : found.part}, from the first layer (blue) to the last (red).`);
  }

  function setOptions(control, names, value) {
    control.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
    control.value = value;
  }

  // --- samples -----------------------------------------------------------------------------------

  const samples = el("section", {});
  let openSamples = new Set();
  function drawSamples() {
    openSamples = new Set([...samples.querySelectorAll("details[open]")].map((each) => each.dataset.run));
    const cards = [...slots.keys()].flatMap((id) => {
      const found = data.get(id)?.samples ?? [];
      if (!found.length) return [];
      const text = ({ prompt, text }) => el("blockquote", {}, // the text begins with the prompt
        ...(text.startsWith(prompt) ? [el("span", { class: "soft" }, prompt), text.slice(prompt.length)] : [text]));
      const [last, ...earlier] = found.toReversed();
      return [el("article", { class: "card" }, el("h3", {}, id), el("small", {}, `step ${whole(last.step)}`), text(last),
        earlier.length ? el("details", { "data-run": id, open: openSamples.has(id) },
          el("summary", {}, `${earlier.length} earlier`),
          ...earlier.flatMap((sample) => [el("small", {}, `step ${whole(sample.step)}`), text(sample)])) : "")];
    });
    samples.replaceChildren(...(cards.length ? [el("h2", {}, "Samples"), el("div", { class: "cards" }, ...cards)] : []));
  }

  // --- the page ----------------------------------------------------------------------------------

  main.append(
    ...intro("Runs", "Every run of the folder. Choose runs to see their curves, how their configs differ, and what they wrote "
      + "while they trained. What trains now is drawn as it comes."),
    notions(NOTIONS, "training.md", "accounting.md"),
    el("div", { class: "row tools filters" }, filter, states, labChoice, all, clear, count), labPlace,
    el("div", { class: "scroll tall", tabindex: 0, "aria-label": "Runs", role: "region" },
      el("table", { class: "runs" }, el("thead", {}, head), body)),
    el("div", { class: "row tools" },
      field("Value", control("value", Object.keys(VALUES), (name) => VALUES[name].replace(/ \(.*/, ""))),
      field("Over", control("axis", Object.keys(AXES), (name) => AXES[name].replace(/ \(.*/, "").toLowerCase())),
      field("Smoothing", smoothing),
      field("Dragging", drag), tick("isLogX", "log x"), tick("isLogY", "log y"),
      el("span", { class: "moves" }, move("◀", "Move left", () => shift(-0.25, -0.25)), move("▶", "Move right", () => shift(0.25, 0.25)),
        move("+", "Zoom in", () => shift(0.25, -0.25)), move("−", "Zoom out", () => shift(-0.5, 0.5)), wholeRange)),
    curves.element, legend, comparison, samples, normSection, repetition,
  );

  (async () => {
    try {
      for (let table = {}; !table.is_complete && rows.size < AT_FIRST && !isLeft;) {
        table = await api("/api/runs");
        takeTable(table);
      }
    } catch (error) {
      setProblem(error.message);
      return;
    }
    const asked = fields.getAll("run");
    const latest = [...rows.values()].filter((row) => row.problem === undefined && isOfLab(row.id)).sort((a, b) => b.active - a.active);
    const first = asked.length ? asked : fields.has("sort") || fields.has("filter") ? [] : latest.slice(0, AT_FIRST).map((row) => row.id);
    for (const id of first.slice(0, MOST)) slots.set(id, slots.size);
    if (options.smoothing === null) {
      const steps = Math.max(0, ...first.map((id) => rows.get(id)?.step ?? 0));
      options.smoothing = steps >= 20_000 ? 200 : steps >= 2000 ? 50 : 1;
      smoothing.value = options.smoothing;
    }
    drawTable();
    draw();
    watch();
    compare();
    loadLab();
  })();

  return () => {
    isLeft = true;
    abort?.abort();
    clearTimeout(waiting);
    document.removeEventListener("visibilitychange", onVisible);
  };
}

function select(names, label, value, change) {
  const made = el("select", {}, ...names.map((name) => el("option", { value: name }, label(name))));
  if (names.length) made.value = value;
  made.addEventListener("change", () => change(names.find((name) => String(name) === made.value) ?? made.value));
  return made;
}

const shortly = (value) => Math.abs(value) >= 1000 ? whole(value) : value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(2) : fixed(value);
