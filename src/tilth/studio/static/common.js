// What all pages use: elements, requests, numbers and colours. No page sets HTML from text.

/** Make an element with attributes and children; a text child is a text, never HTML. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** Ask the server; return the JSON, or throw an Error with its sentence. */
export async function api(path, body, signal) {
  const response = await request(path, body, signal);
  return response.json();
}

/** Ask the server for a stream; yield its events. */
export async function* stream(path, body, signal) {
  const response = await request(path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (held + value).split("\n\n");
    held = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const parsed = JSON.parse(data);
      if (parsed.error) throw new Error(parsed.error.message);
      yield parsed;
    }
  }
}

async function request(path, body, signal) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(path, { ...options, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer; is tilth studio still running?");
  }
  if (!response.ok) {
    const said = await response.json().catch(() => ({}));
    throw new Error(said.error?.message ?? `The server answered with status ${response.status}.`);
  }
  return response;
}

/** Show a sentence at the foot of the page; "" hides it. */
export function setProblem(sentence) {
  const place = document.getElementById("problem");
  const close = el("button", { type: "button", class: "cross", "aria-label": "Close", onclick: () => setProblem("") }, "×");
  place.replaceChildren(sentence, close);
  place.hidden = !sentence;
}

/** Run an action of a button: the button is disabled meanwhile, and an error is shown. */
export function action(button, work) {
  return async (event) => {
    event?.preventDefault();
    if (button.disabled) return;
    button.disabled = true;
    button.setAttribute("aria-busy", "true");
    setProblem("");
    try {
      await work();
    } catch (error) {
      if (error.name !== "AbortError") setProblem(error.message);
    } finally {
      button.disabled = false;
      button.removeAttribute("aria-busy");
    }
  };
}

/** White space made visible, as a token begins or ends with it. */
export function visible(text) {
  return text.replace(/ /g, "␣").replace(/\n/g, "⏎").replace(/\t/g, "⇥") || "∅";
}

export const number = (value, digits = 2) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

export const whole = (value) => value.toLocaleString("en");

export const percent = (value) => `${number(100 * value, value < 0.0995 ? 2 : 1)}%`;

/** A heading, a sentence that explains the page, and a link to the docs. */
export function intro(title, sentence) {
  return [el("h1", {}, title), el("p", { class: "soft" }, sentence)];
}

/** What the words of a page mean, folded up, with the pages of the docs that say more. */
export function notions(rows, ...docs) {
  return el("details", { class: "notions" }, el("summary", {}, "What the words mean"),
    el("dl", {}, ...rows.map(([name, words]) => el("div", {}, el("dt", {}, name), el("dd", {}, words)))),
    el("p", { class: "soft" }, "More: ", ...docs.flatMap((name, place) => [
      place ? ", " : "", el("a", { href: `#docs?page=${name}`, target: "_blank" }, name.replace(".md", ""))]), "."));
}

/** The line of a chart in a list of lines; it has the colour and the dash of line number `index`. */
export function swatch(index) {
  const made = el("span", { class: "swatch" });
  made.style.borderTop = `3px ${["solid", "dashed", "dotted"][Math.floor(index / 10) % 3]} var(--line-${index % 10})`;
  return made;
}

/**
 * A token that can be chosen. A <button> would be a box that no line breaks in; in a text with
 * `roving`, the keys of a button work.
 */
export const tokenButton = (text, style, title, onclick) =>
  el("span", { role: "button", class: `token ${style}`, title, onclick, tabindex: -1 }, text);

/**
 * A text of tokens ({text, style, title}), each a button; the chosen one is outlined, and
 * `choose(place)` is called. `first` is the place of one that is chosen at once.
 */
export function tokenText(tokens, choose, first = null) {
  const buttons = tokens.map(({ text, style, title }, place) => tokenButton(text, style, title, () => pick(place)));
  let chosen = null;
  const pick = (place) => {
    chosen?.classList.remove("chosen");
    chosen = buttons[place];
    chosen.classList.add("chosen");
    choose(place);
  };
  if (first !== null && first in buttons) pick(Number(first));
  return roving(el("p", { class: "text" }, ...buttons));
}

/** Make one tab stop of the tokens of a text: the arrow keys move between them. */
export function roving(place) {
  let last = null;
  const stop = (token) => {
    if (last) last.tabIndex = -1;
    last = token;
    if (last) last.tabIndex = 0;
  };
  place.addEventListener("focusin", ({ target }) => stop(target));
  place.addEventListener("keydown", (event) => {
    const { key, target } = event;
    const side = { ArrowLeft: "previousElementSibling", ArrowRight: "nextElementSibling" }[key];
    if (!side && key !== "Enter" && key !== " ") return;
    event.preventDefault();
    if (side) target[side]?.focus();
    else target.click();
  });
  // The first token is the stop, until another one has the focus.
  new MutationObserver(() => {
    if (!last?.isConnected) stop(place.querySelector("[role=button]"));
  }).observe(place, { childList: true });
  stop(place.querySelector("[role=button]"));
  return place;
}

/** A command with a button that copies it; `what` is its name for screen readers. */
export function copyable(command, what) {
  const copy = el("button", { type: "button", class: "plain small", "aria-label": `Copy ${what}` }, "Copy");
  copy.addEventListener("click", action(copy, async () => {
    await navigator.clipboard.writeText(command);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  }));
  return el("div", { class: "command" }, el("code", {}, command), copy);
}

export const tick = (label, input) => el("label", { class: "tick" }, input, label);

export function field(label, control) {
  return el("label", { class: "field" }, el("span", {}, label), control);
}

export function totals(rows) {
  return el("dl", { class: "totals" },
    ...rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}
