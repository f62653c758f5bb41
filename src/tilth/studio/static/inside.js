// Inside: what each layer predicts, where each head looks, and what a part is worth.

import { action, api, el, field, intro, notions, number, percent, totals, visible } from "./common.js";
import { saves } from "./picture.js";

const EXAMPLE = "Lily had a red ball. Tom wanted the red";

const NOTIONS = [
  ["Layer", "A step of the computation: attention, then a feed-forward. Each adds to the residual stream, a vector for each position."],
  ["Head", "A part of the attention of a layer. For each position it takes a weighted mean over the positions before; the weights are shown."],
  ["Feed-forward", "A small network that is applied to each position on its own."],
  ["Logit lens", "The output matrix, applied to the residual stream after a layer: what the model would say if it ended there."],
];

export function show(main, { model, fields, remember }) {
  const text = el("textarea", { rows: 2, maxlength: 2000, spellcheck: "false" });
  text.value = fields.get("text") ?? EXAMPLE;
  const button = el("button", { type: "submit" }, "Look inside");
  const result = el("section", { "aria-live": "polite" });
  const off = new Set((fields.get("without") ?? "").split(",").filter(Boolean));
  let head = { layer: Number(fields.get("layer")) || 0, head: Number(fields.get("head")) || 0 };

  const note = () => remember({
    text: text.value, without: [...off].sort().join(","), layer: String(head.layer || ""), head: String(head.head || ""),
  });

  const run = action(button, async () => {
    const without = [...off].sort();
    note();
    const found = await api("/api/inside", { model: model(), text: text.value, without });
    draw(found);
  });

  function draw(found) {
    const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
    const [now, whole] = [mean(found.bits), mean(found.bits_of_whole)];
    head = {
      layer: Math.min(head.layer, found.attention.length - 1),
      head: Math.min(head.head, found.attention[0].length - 1),
    };
    result.replaceChildren(
      totals([
        ["bits per token", number(now, 3)],
        ["with all parts", number(whole, 3)],
        ["difference", `${now >= whole ? "+" : "−"}${number(Math.abs(now - whole), 3)}`],
      ]),
      ...switches(found), ...lens(found), ...attention(found), ...norms(found),
    );
  }

  function toggle(part, label) {
    return el("button", {
      type: "button", class: "switch", "data-part": part, "aria-pressed": String(!off.has(part)),
      title: `${off.has(part) ? "Switch on" : "Switch off"} ${part.replace(/[._]/g, " ")}`,
      onclick: async () => {
        if (button.disabled) return;
        if (!off.delete(part)) off.add(part);
        await run();
        result.querySelector(`[data-part="${part}"]`)?.focus({ preventScroll: true });
      },
    }, label);
  }

  function switches(found) {
    const rows = found.attention.map((heads, layer) => el("tr", {},
      el("th", { scope: "row" }, `layer ${layer}`),
      el("td", {}, toggle(`layer.${layer}`, "all")),
      el("td", {}, ...heads.map((_, place) => toggle(`layer.${layer}.head.${place}`, String(place)))),
      el("td", {}, toggle(`layer.${layer}.feed_forward`, "feed-forward"))));
    return [
      el("h2", {}, "Parts"),
      el("p", { class: "soft" }, "Switch off a layer, a head or a feed-forward, and see what it does to the bits."),
      scroll(el("table", {}, el("thead", {}, columns(["", "layer", "heads", "feed-forward"])), el("tbody", {}, ...rows))),
    ];
  }

  function lens(found) {
    const rows = found.lens.map((cells, layer) => el("tr", {},
      el("th", { scope: "row" }, layer ? `layer ${layer - 1}` : "embedding"),
      ...cells.map((cell) => el("td", {
        class: `lens-${Math.min(5, Math.floor(cell.probability * 6))}`, title: percent(cell.probability),
      }, el("code", {}, visible(cell.text))))));
    const table = el("table", { class: "grid" },
      el("thead", {}, columns(["", ...found.tokens.map((token) => visible(token.text))])),
      el("tbody", {}, ...rows.reverse()));
    return [
      el("h2", {}, "Logit lens"),
      el("p", { class: "soft" }, "The likeliest next token after each position, if the model ended at this layer. "
        + "The darker, the more certain."),
      scroll(table),
      saves("Logit lens", table, () => [["layer", "position", "token", "likeliest next", "probability"],
        ...found.lens.flatMap((cells, layer) => cells.map((cell, place) =>
          [layer ? layer - 1 : "embedding", place, found.tokens[place].text, cell.text, cell.probability]))]),
    ];
  }

  function attention(found) {
    const canvas = el("canvas", { role: "img", tabindex: 0 });
    let cell = [0, 0]; // row and column
    const caption = el("p", { class: "soft", role: "status" });
    const layers = el("select", {}, ...found.attention.map((_, i) => el("option", { value: i }, `layer ${i}`)));
    const heads = el("select", {}, ...found.attention[0].map((_, i) => el("option", { value: i }, `head ${i}`)));
    layers.value = head.layer;
    heads.value = head.head;
    const texts = found.tokens.map((token) => token.text);
    const labels = () => el("div", {}, ...texts.map((text) => el("div", {}, visible(text))));
    const sides = [labels(), labels()]; // of rows and of columns
    const map = el("div", { class: "attention" }, sides[0], canvas, el("span", {}), sides[1]);
    const side = Math.max(11, Math.min(30, Math.floor(640 / texts.length))); // pixels of a cell
    map.style.setProperty("--cell", `${side}px`);
    map.style.setProperty("--count", texts.length);
    const rows = () => [["looks", "position", ...texts],
      ...found.attention[head.layer][head.head].map((row, place) => [texts[place], place, ...row.map((weight) => weight / 255)])];
    const title = () => `Attention of layer ${head.layer}, head ${head.head}`;
    const paint = () => {
      head = { layer: Number(layers.value), head: Number(heads.value) };
      canvas.setAttribute("aria-label", title());
      paintMatrix(canvas, found.attention[head.layer][head.head]);
      note();
      caption.textContent = "Point at a cell for its tokens and weight, or move with the arrow keys.";
    };
    const tell = (row, column) => {
      cell = [row, column];
      sides.forEach((labels, which) => [...labels.children].forEach((label, place) =>
        label.classList.toggle("looked", place === cell[which])));
      const weight = found.attention[head.layer][head.head][row][column] / 255;
      caption.textContent = `${visible(texts[row])} looks at ${visible(texts[column])}: ${percent(weight)}`;
    };
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const [column, row] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height]
        .map((share) => Math.min(texts.length - 1, Math.max(0, Math.floor(share * texts.length))));
      tell(row, column);
    });
    canvas.addEventListener("keydown", (event) => {
      const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [0, 0];
      if (!down && !right) return;
      event.preventDefault();
      const within = (place) => Math.min(texts.length - 1, Math.max(0, place));
      tell(within(cell[0] + down), within(cell[1] + right));
    });
    layers.addEventListener("change", paint);
    heads.addEventListener("change", paint);
    paint();
    return [
      el("h2", {}, "Attention"),
      el("p", { class: "soft" }, "Each row is a token that looks, each column a token that is looked at."),
      el("div", { class: "row" }, field("Layer", layers), field("Head", heads)),
      scroll(map), caption, saves("Attention", map, rows),
    ];
  }

  function norms(found) {
    const rows = found.norms.map((values, layer) => el("tr", {},
      el("th", { scope: "row" }, layer ? `layer ${layer - 1}` : "embedding"),
      ...values.map((value) => el("td", { class: "number" }, number(value, 1)))));
    const table = el("table", { class: "grid" },
      el("thead", {}, columns(["", ...found.tokens.map((token) => visible(token.text))])), el("tbody", {}, ...rows));
    return [
      el("h2", {}, "Norms of the residual stream"),
      el("p", { class: "soft" }, "The length of the vector that each layer passes on, by position."),
      scroll(table),
      saves("Norms of the residual stream", table, () => [["layer", ...found.tokens.map((token) => token.text)],
        ...found.norms.map((values, layer) => [layer ? layer - 1 : "embedding", ...values])]),
    ];
  }

  main.append(
    ...intro("Inside", "A forward pass over a short text, with the values in between."),
    notions(NOTIONS, "model.md", "generation.md"),
    el("form", { onsubmit: run }, field("Text", text), el("div", { class: "row" }, button)),
    result,
  );
}

const scroll = (inner) => el("div", { class: "scroll", tabindex: 0 }, inner);
const columns = (names) => el("tr", {}, ...names.map((name) => name ? el("th", { scope: "col" }, name) : el("td", {})));

/** Paint a square matrix of 0 to 255, a cell for each pixel of the canvas. */
function paintMatrix(canvas, weights) {
  const size = weights.length;
  canvas.width = canvas.height = size;
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--accent-rgb").split(",").map(Number);
  const image = new ImageData(size, size);
  weights.forEach((row, y) => row.forEach((weight, x) => {
    image.data.set([...ink, Math.round(255 * Math.sqrt(weight / 255))], 4 * (y * size + x));
  }));
  canvas.getContext("2d").putImageData(image, 0, 0);
}
