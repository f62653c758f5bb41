// Labs, a part of the page Runs: the question of a lab, its answer, tables, charts and texts.

import { chart } from "./chart.js";
import { copyable, el } from "./common.js";
import { saves } from "./picture.js";

const MOST_NAMED = 12; // lines in a legend

/** Show a lab in an element of the page. */
export function drawLab(place, lab) {
  const ended = lab.trials.filter(({ state }) => !["planned", "running"].includes(state)).length;
  const open = [...place.querySelectorAll("details")].map((each) => each.open);
  const charts = lab.charts.map((each) => ({ each, made: chart({ title: each.title, caption: each.text }) }));
  place.replaceChildren(
    el("h2", {}, lab.asks),
    el("p", { class: "answer" }, lab.answer ?? `No answer yet: ${ended} of ${lab.trials.length} trials have ended.`),
    ...lab.notes.map((note) => el("p", { class: "soft" }, note)),
    el("div", { class: "chart-grid" }, ...charts.map(({ made }) => made.element)),
    ...lab.tables.flatMap(drawTable),
    lab.quotes.length ? el("div", { class: "cards" }, ...lab.quotes.map(({ title, caption, text }) => el("article", { class: "card" },
      el("h3", {}, title), el("small", {}, caption), el("blockquote", {}, text)))) : "",
    ...lab.folds.map((fold) => el("details", {}, el("summary", {}, fold.title),
      ...fold.text.map((text) => el("p", {}, text)),
      fold.code ? el("pre", { tabindex: 0 }, el("code", {}, fold.code)) : "",
      ...(fold.table ? drawTable(fold.table) : []))),
    lab.command ? copyable(lab.command, "the command of the lab") : "",
  );
  place.querySelectorAll("details").forEach((each, number) => { each.open = open[number] ?? false; });
  return Promise.all(charts.map(({ each, made }) => made.draw(
    each.lines.map(({ name, points }, index) => ({
      name, index, x: points.map(([x]) => x), y: points.map(([, y]) => y), mode: points.length < 60 ? "lines+markers" : "lines",
    })), {
      x: { title: each.x_label, type: each.x_scale, exponentformat: "e" }, y: { title: each.y_label, type: each.y_scale },
      showlegend: each.lines.length > 1 && each.lines.length <= MOST_NAMED, legend: { orientation: "h", y: -0.25, yanchor: "top" },
    })));
}

function drawTable({ title, columns, rows }) {
  const isNumber = (cell) => typeof cell === "number";
  const shown = (cell) => cell === null ? "–" : isNumber(cell) ? Number(cell.toPrecision(6)).toLocaleString("en", { maximumFractionDigits: 12 }) : String(cell);
  const table = el("table", {},
    el("thead", {}, el("tr", {}, ...columns.map((name, column) =>
      el("th", { scope: "col", class: rows.some((row) => isNumber(row[column])) ? "number" : false }, name)))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) =>
      el("td", { class: isNumber(cell) ? "number" : false }, shown(cell)))))));
  return [el("h3", {}, title), el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, table),
    saves(title, table, () => [columns, ...rows])];
}
