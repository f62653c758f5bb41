"use strict";
// Draws the charts of a report from the JSON in the page, in the colours of the page.

const sections = JSON.parse(document.getElementById("numbers").textContent);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const options = {
  responsive: true,
  displaylogo: false,
  typesetMath: false, // names may contain dollars
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
};

function layoutOf(x, y) {
  const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zeroline: false, automargin: true };
  const narrow = window.innerWidth < 640;
  return {
    paper_bgcolor: colour("--paper"),
    plot_bgcolor: colour("--paper"),
    font: { color: colour("--ink"), family: "system-ui, sans-serif", size: narrow ? 11 : 13 },
    margin: { l: narrow ? 44 : 60, r: 10, t: 34, b: 44 },
    hovermode: "closest",
    hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--line"), font: { color: colour("--ink") }, namelength: -1 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--accent") },
    legend: { orientation: "h", x: 0, xanchor: "left", yref: "container", y: 0, yanchor: "bottom" },
    xaxis: { ...axis, ...x },
    yaxis: { ...axis, ...y, title: { ...y.title, standoff: 12 } }, // else long tick labels overlap it
  };
}

// --- learning curves ---------------------------------------------------------------------------

function drawCurves(figure, section) {
  const form = figure.querySelector("form");
  const chosen = (name) => form.elements[name].value;
  const on = (name) => form.elements[name].checked;
  const [unit, unitSeconds] = section.time;
  const places = { steps: "step", seconds: `training time (${unit})`, tokens: "training tokens" };
  const place = chosen("x");
  const isBits = chosen("y") === "valid_bits";
  const hasTrain = on("train") && !isBits; // bits per byte are only measured on validation
  const hasValid = on("valid") || isBits;
  const xOf = (curve) => (place === "seconds" ? curve.seconds.map((s) => s / unitSeconds) : curve[place]);
  const seeds = new Set(section.spreads[chosen("y")].map((spread) => spread.group));
  const hover = `<b>%{fullData.name}</b>, %{meta}<br>step %{customdata:,}: %{y:.4f}<extra></extra>`;
  const line = (curve, name, group, kind, width, opacity, mode = "lines") => ({
    x: xOf(curve),
    y: curve.values,
    customdata: curve.steps,
    name,
    meta: kind,
    mode,
    opacity,
    marker: { size: 5 },
    line: { color: section.groups[group].colour, dash: section.groups[group].dash, width },
    legendgroup: String(group),
    showlegend: false,
    hovertemplate: hover,
  });

  const traces = [];
  for (const spread of hasValid ? section.spreads[chosen("y")] : []) {
    const whole = spread.low.map((_, i) => i).filter((i) => spread.low[i] !== null && spread.high[i] !== null);
    const x = xOf(spread.mean);
    traces.push({
      x: [...whole.map((i) => x[i]), ...whole.toReversed().map((i) => x[i])],
      y: [...whole.map((i) => spread.high[i]), ...whole.toReversed().map((i) => spread.low[i])],
      fill: "toself",
      fillcolor: section.groups[spread.group].colour,
      opacity: 0.2,
      mode: "none",
      hoverinfo: "skip",
      legendgroup: String(spread.group),
      showlegend: false,
    });
  }
  for (const run of section.runs) {
    const isSeed = seeds.has(run.group);
    if (hasTrain) {
      const kind = chosen("window") === "1" ? "train" : `train, mean of ${chosen("window")} steps`;
      traces.push(line(run.train_loss[chosen("window")], run.name, run.group, kind, 1.1, hasValid ? 0.55 : 1));
    }
    if (hasValid) {
      const thin = isSeed ? [1.1, 0.6] : [2.2, 1];
      traces.push(line(run[chosen("y")], run.name, run.group, "validation", ...thin, "lines+markers"));
    }
  }
  for (const spread of hasValid ? section.spreads[chosen("y")] : []) {
    const name = section.groups[spread.group].name;
    traces.push(line(spread.mean, name, spread.group, "validation, mean", 2.6, 1));
  }
  section.groups.forEach((group, index) => {
    if (!section.runs.some((run) => run.group === index)) return; // not started
    const mark = { color: group.colour, dash: group.dash, width: 3 };
    traces.push({ x: [null], y: [null], mode: "lines", line: mark, name: group.name, legendgroup: String(index) });
  });

  const layout = layoutOf(
    { title: { text: places[place] }, type: on("logx") ? "log" : "linear" },
    { title: { text: isBits ? "bits per byte" : "loss (nats per token)" }, type: on("logy") ? "log" : "linear" },
  );
  if (section.shown_losses !== null && !isBits && !on("logy")) layout.yaxis.range = section.shown_losses;
  // The zoom stays until an axis changes.
  layout.uirevision = [place, isBits, on("logx"), on("logy")].join();
  for (const name of ["train", "valid", "window"]) {
    for (const input of form.querySelectorAll(`[name=${name}]`)) input.disabled = isBits;
  }
  Plotly.react(figure.querySelector(".chart"), traces, layout, options);
}

// --- final bits per byte along the axis of the lab --------------------------------------------

function drawAxis(figure, section) {
  const axis = section.axis;
  const [x, y] = axis.line;
  const marks = (points, symbol, size, text) => ({
    x: points.map((point) => point.x),
    y: points.map((point) => point.bits),
    mode: "markers",
    marker: { symbol, size, color: points.map((point) => section.groups[point.group].colour) },
    text: points.map((point) => point.name),
    hovertemplate: `<b>%{text}</b><br>%{x}: ${text}<extra></extra>`,
    showlegend: false,
  });
  const traces = [
    { x, y, mode: "lines", line: { color: colour("--soft"), width: 1.2 }, hoverinfo: "skip", showlegend: false },
    marks(axis.points.filter((point) => !point.is_diverged), "circle", 10, "%{y:.4f}"),
    marks(axis.points.filter((point) => point.is_diverged), "x", 11, "diverged"),
  ];
  const layout = layoutOf(
    { title: { text: axis.label }, type: axis.scale, exponentformat: "e", ...axis.ticks },
    { title: { text: "validation bits per byte" } },
  );
  Plotly.react(figure.querySelector(".chart"), traces, layout, options);
}

// --- charts of the lab file --------------------------------------------------------------------

function drawLines(figure, section) {
  const chart = section.charts[figure.dataset.chart];
  const shown = (value) =>
    value !== 0 && (Math.abs(value) >= 1e9 || Math.abs(value) < 1e-3)
      ? value.toExponential()
      : value.toLocaleString("en", { maximumSignificantDigits: 6 });
  const traces = chart.lines.map((line) => ({
    x: line.x,
    y: line.y,
    name: line.name,
    mode: line.is_marked ? "lines+markers" : "lines",
    marker: { size: 7 },
    line: { color: line.colour, dash: line.dash, width: 2 },
    text: line.x.map((x, i) => `${chart.x_label}: ${shown(x)}<br>${chart.y_label}: ${shown(line.y[i])}`),
    hovertemplate: "<b>%{fullData.name}</b><br>%{text}<extra></extra>",
  }));
  const layout = layoutOf(
    { title: { text: chart.x_label }, type: chart.x_scale, exponentformat: "e", ...chart.x_ticks },
    { title: { text: chart.y_label }, type: chart.y_scale, exponentformat: "e", ...chart.y_ticks },
  );
  layout.showlegend = chart.lines.length > 1;
  Plotly.react(figure.querySelector(".chart"), traces, layout, options);
}

const draws = { curves: drawCurves, axis: drawAxis, lines: drawLines };

function drawAll() {
  for (const figure of document.querySelectorAll("figure[data-section]")) {
    draws[figure.className](figure, sections[figure.dataset.section]);
  }
}

for (const form of document.querySelectorAll("figure form")) {
  const figure = form.closest("figure");
  form.addEventListener("change", () => drawCurves(figure, sections[figure.dataset.section]));
  form.addEventListener("submit", (event) => event.preventDefault());
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
matchMedia("(max-width: 640px)").addEventListener("change", drawAll);
drawAll();
