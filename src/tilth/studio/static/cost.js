// Cost: what a model needs before it is trained; each number opens into its arithmetic.
//
// Python computes and formats every number: this page shows tables of cells. A cell with a path is a
// number of `Account.to_dict()`.

import { chart, colour } from "./chart.js";
import { api, copyable, el, field, intro, notions, setProblem } from "./common.js";

const LATER = 120; // milliseconds after the last change of a field

const NOTIONS = [
  ["FLOP", "A multiplication or an addition of two numbers. A forward pass takes about 2 for each parameter and token, training about 6."],
  ["Activations", "Values of the forward pass that the backward pass needs again: they often take more memory than the weights."],
  ["MFU", "The share of the peak of the hardware that the training reaches, by the FLOPs of the model alone."],
];

export function show(main, { fields, remember }) {
  const given = Object.fromEntries([...fields].filter(([name]) => !["model", "subject", "number"].includes(name)));
  let subject = fields.get("subject") ?? "gpt2-small";
  let [open = "", ...followed] = fields.getAll("number"); // a number of a table, and the terms that were followed from it
  let known = {}; // the fields of the form, by name
  let timer = 0;
  let asking = null;

  const chooser = el("select", { id: "subject" });
  const groups = el("div", { class: "groups" });
  const reset = el("button", { type: "button", class: "plain", onclick: forget }, "Reset");
  const heading = el("h2", { class: "subject" });
  const notes = el("div", {});
  const repeat = el("div", {});
  const charts = {}; // by title
  const chartGrid = el("div", { class: "chart-grid" });
  const result = el("div", {});
  const form = el("form", { class: "cost", onsubmit: (event) => { event.preventDefault(); compute(); } },
    el("div", { class: "row" }, field("Model or recipe", chooser), reset), groups);

  chooser.addEventListener("change", () => {
    subject = chooser.value;
    for (const name of Object.keys(given)) delete given[name];
    compute();
  });

  main.append(
    ...intro("Cost", "What a model costs before you train it: parameters, operations, memory, hours. Move a slider, "
      + "or type any number. Choose a number in a table to see its arithmetic and the line that computes it."),
    notions(NOTIONS, "accounting.md", "scaling.md"),
    el("div", { class: "calculator" }, form,
      el("section", { class: "account" }, heading, notes, repeat, chartGrid, result)));
  compute();
  return () => {
    clearTimeout(timer);
    asking?.abort();
  };

  /** The request for the fields that a person has set. */
  function asked() {
    const body = { subject, shape: {} };
    for (const [name, value] of Object.entries(given)) {
      const place = known[name]?.is_shape ?? SHAPE.has(name) ? body.shape : body;
      place[name] = parsed(name, value);
    }
    return body;
  }

  async function compute() {
    asking?.abort();
    asking = new AbortController();
    try {
      const found = await api("/api/cost", asked(), asking.signal);
      setProblem("");
      note();
      draw(found);
    } catch (error) {
      if (error.name !== "AbortError") setProblem(error.message);
    }
  }

  function change(name, value) {
    if (value === "") delete given[name];
    else given[name] = String(value);
    clearTimeout(timer);
    timer = setTimeout(compute, LATER);
  }

  function forget() {
    for (const name of Object.keys(given)) delete given[name];
    compute();
  }

  function draw(found) {
    known = Object.fromEntries(found.fields.map((each) => [each.name, each]));
    drawSubjects(found.subjects);
    drawForm(found.fields);
    heading.textContent = found.name;
    notes.replaceChildren(...found.notes.map((note) => el("p", { class: "soft" }, note)));
    repeat.replaceChildren(copyable(found.command, "the command"));
    result.replaceChildren(...found.tables.map(drawTable));
    for (const each of found.charts) drawChart(each);
    const again = open && result.querySelector(`button[data-path="${CSS.escape(open)}"]`);
    if (again) explain(again, open);
  }

  function drawSubjects(subjects) {
    if (chooser.length !== subjects.length) {
      const names = [...new Set(subjects.map((each) => each.group))];
      chooser.replaceChildren(...names.map((group) => el("optgroup", { label: group },
        ...subjects.filter((each) => each.group === group).map(({ id }) => el("option", { value: id }, id)))));
    }
    chooser.value = subject;
  }

  function drawForm(all) {
    const names = [...new Set(all.map((each) => each.group))];
    if (!groups.children.length) {
      groups.replaceChildren(...names.map((group) => el("fieldset", {}, el("legend", {}, group),
        ...all.filter((each) => each.group === group).map(makeField))));
    }
    for (const each of all) setField(each);
  }

  function makeField(each) {
    const label = each.name.replaceAll("_", " ");
    const id = `cost-${each.name}`;
    let control;
    if (each.kind === "choice") {
      control = el("select", { id }, ...each.choices.map((value) => el("option", { value }, value || "none")));
    } else if (each.kind === "switch") {
      control = el("input", { id, type: "checkbox" });
    } else {
      control = el("input", { id, type: "text", inputmode: each.kind === "number" ? "decimal" : "text", autocomplete: "off" });
    }
    const isInstant = each.kind === "choice" || each.kind === "switch";
    control.addEventListener(isInstant ? "change" : "input", () =>
      change(each.name, each.kind === "switch" ? control.checked : control.value.trim()));
    const parts = [el("label", { for: id, title: each.what }, label), control];
    if (each.ladder) {
      const slider = el("input", {
        type: "range", id: `${id}-slider`, min: 0, max: each.ladder.length - 1, step: 1, "aria-label": `${label}, slider`,
      });
      slider.addEventListener("input", () => {
        const value = known[each.name].ladder[slider.value];
        slider.setAttribute("aria-valuetext", value);
        control.value = value;
        change(each.name, value);
      });
      parts.push(slider);
    }
    return el("div", { class: "setting", "data-name": each.name }, ...parts);
  }

  function setField(each) {
    const control = document.getElementById(`cost-${each.name}`);
    const slider = document.getElementById(`cost-${each.name}-slider`);
    control.closest(".setting").classList.toggle("given", each.is_given);
    if (control !== document.activeElement) {
      if (each.kind === "switch") control.checked = each.value;
      else control.value = each.value ?? "";
    }
    if (slider && slider !== document.activeElement) {
      slider.value = each.nearest ?? 0;
      slider.setAttribute("aria-valuetext", String(each.value ?? "not set"));
    }
  }

  function drawChart({ title, unit, labels, series }) {
    if (!charts[title]) {
      const rows = () => charts[title].rows;
      charts[title] = chart({ title, rows });
      chartGrid.append(charts[title].element);
    }
    const made = charts[title];
    made.rows = [["", ...series.map((each) => each.name)], ...labels.map((label, i) => [label, ...series.map((each) => each.values[i])])];
    const isStacked = series.length > 1;
    const paint = (place) => colour(`--line-${place % 10}`);
    made.draw(series.map((each, place) => ({
      type: "bar", name: each.name, hovertemplate: "%{label}<extra></extra>", marker: { color: isStacked ? paint(place) : labels.map((_, i) => paint(i)) },
      ...(isStacked
        ? { x: labels, y: each.values, hovertemplate: `${each.name}: %{y:.1%}<extra></extra>` }
        : { orientation: "h", x: each.values, y: labels, hovertemplate: `%{y}: %{x:,} ${unit}<extra></extra>` }),
    })), {
      height: isStacked ? 300 : 250, barmode: "stack", bargap: 0.25, margin: { l: 40, r: 12, t: 6, b: 40 },
      showlegend: isStacked, legend: { orientation: "h", y: -0.4, font: { size: 11 } },
      x: isStacked ? { title: "context length (tokens)", tickangle: 0, tickfont: { size: 11 } } : { title: unit, exponentformat: "B", nticks: 4 },
      y: isStacked ? { tickformat: ".0%", range: [0, 1] } : { autorange: "reversed" },
    });
  }

  function drawTable(table) {
    const head = el("tr", {}, el("td", {}), ...table.columns.map((name) => el("th", { scope: "col", class: "number" }, name)));
    const rows = table.rows.map((row) => el("tr", { class: row.is_sum ? "sum" : false },
      el("th", { scope: "row" }, row.label), ...row.cells.map(drawCell)));
    return el("section", { class: "costs" },
      el("h2", {}, table.title), el("p", { class: "soft" }, table.what),
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": table.title },
        el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows))));
  }

  function drawCell(cell) {
    if (cell.path) {
      return el("td", { class: "number" }, el("button", {
        type: "button", class: "opens", "data-path": cell.path, "aria-expanded": "false",
        onclick: (event) => toggle(event.currentTarget, cell.path),
      }, cell.text));
    }
    if (cell.share === null) return el("td", { class: "number" }, cell.text);
    return el("td", { class: "number" },
      el("meter", { min: 0, max: 1, value: cell.share, "aria-hidden": "true" }), el("span", { class: "share" }, cell.text));
  }

  function toggle(button, path) {
    const isOpen = button.getAttribute("aria-expanded") === "true";
    close();
    open = isOpen ? "" : path;
    followed = [];
    note();
    if (!isOpen) explain(button, path);
  }

  function close() {
    for (const row of result.querySelectorAll("tr.arithmetic")) row.remove();
    for (const button of result.querySelectorAll(".opens[aria-expanded=true]")) button.setAttribute("aria-expanded", "false");
  }

  /** Show the arithmetic of a number in a row below its own. */
  async function explain(button, path) {
    const row = button.closest("tr");
    const place = el("div", { class: "opened", "aria-live": "polite" });
    row.after(el("tr", { class: "arithmetic" }, el("td", { colspan: row.children.length }, place)));
    button.setAttribute("aria-expanded", "true");
    for (const each of [path, ...followed]) await add(place, each);
  }

  function note() {
    remember({ subject, ...given, number: [open, ...followed] });
  }

  function follow(place, path) {
    if (path !== open && !followed.includes(path)) followed.push(path);
    note();
    return add(place, path);
  }

  async function add(place, path) {
    const shown = [...place.children].find((card) => card.dataset.path === path);
    if (shown) {
      shown.scrollIntoView({ block: "nearest" });
      return;
    }
    try {
      const found = await api("/api/cost/number", { ...asked(), number: path });
      place.append(drawExplanation(found, (next) => follow(place, next)));
    } catch (error) {
      setProblem(error.message);
    }
  }
}

/** The fields of a model's shape that a link may have, before Python has said which are. */
const SHAPE = new Set(["vocab_size", "context_length", "d_model", "num_layers", "num_heads", "num_kv_heads", "d_ff",
  "ffn", "norm", "position", "tie_embeddings", "qk_norm"]);
const TEXTS = new Set(["memory", "optimizer", "dtype", "hardware", "ffn", "norm", "position"]);

/** The value of a field as JSON: a number, a switch, or a text that Python refuses with a sentence. */
function parsed(name, value) {
  if (TEXTS.has(name)) return value;
  if (value === "true" || value === "false") return value === "true";
  return value.trim() !== "" && Number.isFinite(Number(value)) ? Number(value) : value;
}

function drawExplanation(found, follow) {
  const card = el("div", { class: "explanation", "data-path": found.path }, el("p", {}, el("strong", {}, found.label)));
  const lines = [];
  if (!found.is_given && found.parts.length > 1) {
    lines.push(["=", ...found.parts.map((part) => part.path
      ? el("button", { type: "button", class: "term", onclick: () => follow(part.path) }, part.text)
      : part.text)], ["=", ...found.parts.map((part) => part.value)]);
  }
  lines.push(["=", found.value]);
  card.append(...lines.map((parts) => el("p", { class: "formula" }, el("span", { class: "equals" }, parts[0]),
    el("span", {}, ...parts.slice(1)))));
  if (found.is_given) card.append(el("p", { class: "soft" }, "A setting: it is given, not computed."));
  for (const line of found.lines) card.append(drawLine(line));
  return card;
}

function drawLine(line) {
  const source = el("pre", { tabindex: 0 }, ...line.source.map((text, place) => {
    const number = line.first + place;
    return el("span", { class: number === line.line ? "source here" : "source" },
      el("span", { class: "place" }, String(number)), `${text}\n`);
  }));
  return el("details", { class: "line" },
    el("summary", {}, el("code", {}, line.text), el("small", {}, ` ${line.file}:${line.line}, ${line.function}`)), source);
}
