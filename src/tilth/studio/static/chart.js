// Charts: plotly under the content security policy, in the colours of the page, with downloads.
//
//   const loss = chart({ title: "Loss", file: "loss" });
//   main.append(loss.element);
//   loss.draw([{ name: "first", x: [1, 2], y: [3, 2] }], { x: { title: "step" }, y: { title: "loss" } });
//
// Lines only (SVG): it works without WebGL. The script of plotly is loaded with the first chart. It
// puts its rules into the stylesheet with the id plotly.js-style-global, which index.html has; a
// <style> that it made itself would be refused.

import { el } from "./common.js";

const NAMES = 10; // colours of lines in style.css, --line-0 and so on; then they are dashed
const dark = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 40rem)");

let loaded = null;

/** Load plotly once. Call it early to save time. */
export function loadPlotly() {
  loaded ??= new Promise((resolve, reject) => {
    const script = el("script", { src: "/static/plotly.js" });
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => reject(new Error("The chart library cannot be loaded.")));
    document.head.append(script);
  });
  return loaded;
}

/** A colour of the page, such as colour("--accent"). */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The colour and the dash of line number `index`. */
export const lineStyle = (index) => ({
  color: colour(`--line-${index % NAMES}`),
  dash: ["solid", "dash", "dot"][Math.floor(index / NAMES) % 3],
});

/** Save a text or a blob as a file. */
export function download(name, content, type = "text/csv;charset=utf-8") {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Rows as CSV. A text that a spreadsheet would compute as a formula gets an apostrophe. */
export function csv(rows) {
  const cell = (value) => {
    if (value === null || value === undefined || Number.isNaN(value)) return "";
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",") + "\r\n").join("");
}

/** The buttons that download something as PNG and as CSV. */
export function saveButtons(title, png, table) {
  const save = (kind, run) => el("button", {
    type: "button", class: "plain small", "aria-label": `Download ${title} as ${kind}`, onclick: run,
  }, kind);
  return el("span", { class: "saves" }, save("PNG", png), save("CSV", table));
}

/**
 * Text as plotly shows it: it understands a few tags and entities, which these are not. No text of
 * a chart may have <b>, <i>, <sup> and so on: plotly draws them with style attributes, which the
 * policy refuses. So exponents of ticks are e+5 and k, never superscripts.
 */
export const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;");

/**
 * A chart as a <figure>, with buttons that download it.
 *
 * @param {{title: string, file?: string, caption?: string, rows?: () => any[][]}} options `file` is the
 *   name of downloads, without its ending; `rows` returns the table of the CSV, headings first
 *   (default: a row for each point of the traces that have a name).
 * @returns `element`; `draw(traces, layout)`, where traces are plotly's (a trace with `index` gets
 *   the style of that line) and layout has `x`, `y` ({title, type, range}) and any part of plotly's
 *   layout; `onzoom(function)`, called with the ranges of the x and of the y axis: [from, to], null
 *   for all, or undefined where it is as before; `plot`, the
 *   element that plotly draws into.
 */
export function chart({ title, file = title.toLowerCase().replace(/\W+/g, "-"), caption = "", rows }) {
  const plot = el("div", { class: "plot", role: "img", "aria-label": title });
  const text = el("span", { class: "soft" }, caption);
  const element = el("figure", { class: "chart" },
    el("div", { class: "chart-head" }, el("h3", {}, title), saveButtons(title, png, table)),
    plot, el("figcaption", {}, text));
  let drawn = null;
  let zoomed = () => {};
  let isBound = false;

  async function draw(traces, layout = {}) {
    drawn = { traces, layout };
    const Plotly = await loadPlotly();
    if (!plot.isConnected || drawn.traces !== traces) return; // left, or drawn again meanwhile
    await Plotly.react(plot, traces.map(styled), layoutOf(layout), {
      responsive: true, displaylogo: false, displayModeBar: false, scrollZoom: false, typesetMath: false,
    });
    if (!isBound) {
      isBound = true;
      plot.on("plotly_relayout", (change) => {
        const [x, y] = ["xaxis", "yaxis"].map((axis) => {
          const at = (end) => plot.layout[axis].type === "log" ? 10 ** change[`${axis}.range[${end}]`] : change[`${axis}.range[${end}]`];
          return change[`${axis}.autorange`] ? null : `${axis}.range[0]` in change ? [at(0), at(1)] : undefined;
        });
        if (x !== undefined || y !== undefined) zoomed(x, y);
      });
    }
  }

  async function png() {
    const Plotly = await loadPlotly();
    if (!drawn) return;
    const { width, height } = plot.getBoundingClientRect();
    const lines = drawn.traces.filter((trace) => trace.name !== undefined && trace.showlegend !== false);
    const layout = { // the picture stands alone, so it has the title and the names of the lines
      ...plot.layout, title: { text: plain(title), font: { size: 16 }, x: 0.02, xanchor: "left" },
      showlegend: lines.length > 1, legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0 },
      margin: { ...plot.layout.margin, t: 44 },
    };
    const size = { width, height: height + 40 + 22 * (lines.length > 1 ? Math.ceil(lines.length / 4) : 0) };
    const url = await Plotly.toImage({ data: plot.data, layout: { ...layout, ...size } }, { format: "png", ...size, scale: 2 });
    const bytes = Uint8Array.from(atob(url.split(",")[1]), (character) => character.charCodeAt(0));
    download(`${file}.png`, new Blob([bytes], { type: "image/png" }));
  }

  function table() {
    if (drawn) download(`${file}.csv`, csv(rows ? rows() : pointRows(drawn)));
  }

  const again = () => {
    if (plot.isConnected) drawn && draw([...drawn.traces], drawn.layout);
  };
  dark.addEventListener("change", again);
  narrow.addEventListener("change", again);
  return {
    element, plot, draw,
    onzoom: (run) => { zoomed = run; },
    caption: (words) => { text.textContent = words; },
  };
}

function pointRows({ traces, layout }) {
  const named = traces.filter((trace) => trace.name !== undefined && trace.x);
  const points = named.flatMap((trace) => trace.x.map((x, place) => [trace.name, x, trace.y[place]]));
  return [["line", layout.x?.title ?? "x", layout.y?.title ?? "y"], ...points];
}

function styled({ index, ...trace }) {
  const name = trace.name === undefined ? { showlegend: false } : { name: plain(trace.name) };
  const style = index === undefined ? {} : lineStyle(index);
  return { type: "scatter", mode: "lines", ...trace, ...name, line: { width: 1.8, ...style, ...trace.line } };
}

function layoutOf({ x = {}, y = {}, ...rest }) {
  const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zeroline: false, automargin: true };
  const own = ({ title, ...more }, standoff) => ({ ...axis, ...more, title: { text: plain(title ?? ""), standoff } });
  return {
    paper_bgcolor: colour("--paper"),
    plot_bgcolor: colour("--paper"),
    font: { color: colour("--ink"), family: "system-ui, sans-serif", size: narrow.matches ? 11 : 13 },
    margin: { l: narrow.matches ? 44 : 60, r: 12, t: 10, b: 46 },
    height: narrow.matches ? 300 : 380,
    hovermode: "closest",
    hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink") }, namelength: -1 },
    showlegend: false,
    dragmode: "zoom",
    ...rest,
    xaxis: own({ exponentformat: "B", ...x }, 8),
    yaxis: own({ exponentformat: "e", ...y }, 12),
  };
}
