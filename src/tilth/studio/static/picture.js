// Downloads of what plotly does not draw: a part of a page as PNG, and its data as CSV.

import { colour, csv, download, saveButtons } from "./chart.js";
import { el } from "./common.js";

const MARGIN = 20;
const HEAD = 34; // of the title
const MOST = 16_000; // pixels of a side; browsers draw nothing on larger canvases

/** Buttons that download an element as PNG, and rows as CSV, headings first. */
export function saves(title, element, rows) {
  const file = title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-");
  return saveButtons(title,
    async () => download(`${file}.png`, await picture(element, title)),
    () => download(`${file}.csv`, csv(rows())));
}

/**
 * Draw an element as the browser has laid it out, below a title; return the PNG. Buttons are left out, but those of the
 * class `pictured`.
 */
export function picture(element, title) {
  const frame = element.getBoundingClientRect();
  const [width, height] = [Math.max(frame.width, 320) + 2 * MARGIN, frame.height + HEAD + 2 * MARGIN];
  const scale = Math.min(2, MOST / width, MOST / height);
  const canvas = el("canvas", { width: Math.ceil(scale * width), height: Math.ceil(scale * height) });
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.fillStyle = colour("--paper");
  context.fillRect(0, 0, width, height);
  context.fillStyle = colour("--ink");
  context.font = "600 16px system-ui, sans-serif";
  context.fillText(title, MARGIN, MARGIN + 12, width - 2 * MARGIN);
  context.translate(MARGIN - frame.x, MARGIN + HEAD - frame.y);
  paint(context, element);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

function paint(context, element) {
  const style = getComputedStyle(element);
  if (style.display === "none" || element.matches("button:not(.pictured)")) return;
  for (const box of element.getClientRects()) paintBox(context, box, style);
  const box = element.getBoundingClientRect();
  if (element.matches("canvas")) {
    context.imageSmoothingEnabled = false;
    context.drawImage(element, box.x, box.y, box.width, box.height);
  } else if (element.matches("meter")) {
    for (const [name, share] of [["--line", 1], ["--accent", element.value / element.max]]) {
      context.fillStyle = colour(name);
      context.beginPath();
      context.roundRect(box.x, box.y, share * box.width, box.height, 4);
      context.fill();
    }
  } else {
    for (const child of element.childNodes) child instanceof Text ? paintText(context, child, style) : paint(context, child);
  }
}

function paintBox(context, box, style) {
  const border = Object.fromEntries(["Top", "Bottom", "Left"].map((side) => [side, parseFloat(style[`border${side}Width`])]));
  context.fillStyle = style.backgroundColor;
  context.strokeStyle = style.borderTopColor;
  context.lineWidth = border.Top;
  context.beginPath();
  context.roundRect(box.x, box.y, box.width, box.height, parseFloat(style.borderTopLeftRadius) || 0);
  context.fill();
  if (border.Left && border.Top) context.stroke();
  else {
    context.fillStyle = style.borderLeftColor;
    context.fillRect(box.x, box.y, border.Left, box.height);
    context.fillStyle = style.borderTopColor;
    context.fillRect(box.x, box.y, box.width, border.Top);
    context.fillStyle = style.borderBottomColor;
    context.fillRect(box.x, box.y + box.height - border.Bottom, box.width, border.Bottom);
  }
}

/** Draw each line of a text where it is; vertical text has one line. */
function paintText(context, text, style) {
  context.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  context.fillStyle = style.color;
  const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = context.measureText("x");
  const range = document.createRange();
  range.selectNode(text);
  if (style.writingMode !== "horizontal-tb") {
    const box = range.getBoundingClientRect();
    context.save();
    context.translate(box.x, box.y);
    context.rotate(Math.PI / 2);
    context.fillText(text.data, 0, (up - down - box.width) / 2);
    context.restore();
    return;
  }
  const lines = [];
  let place = 0;
  for (const character of text.data) {
    range.setStart(text, place);
    range.setEnd(text, place += character.length);
    const box = range.getBoundingClientRect();
    if (!box.width && !character.trim()) continue; // a line break, or a space where a line ends
    const last = lines.at(-1);
    if (!last || Math.abs(box.y - last.y) > 2) lines.push({ x: box.x, y: box.y, words: character });
    else {
      last.x = Math.min(last.x, box.x);
      last.words += character;
    }
  }
  for (const { x, y, words } of lines) context.fillText(words, x, y + up);
}
