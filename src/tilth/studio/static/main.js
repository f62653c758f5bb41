// The frame of the pages: navigation, the choice of a model, and links that restore a view.
//
// A view is the part of the address after "#": the page, the model and the fields of the page. A
// link fills in the fields and computes nothing; a person presses the button.

import { api, el, setProblem } from "./common.js";

const PAGES = {
  tokens: { title: "Tokens", load: () => import("./tokens.js") },
  write: { title: "Write", load: () => import("./write.js") },
  read: { title: "Read", load: () => import("./read.js") },
  inside: { title: "Inside", load: () => import("./inside.js") },
};

const select = document.getElementById("model");
const main = document.getElementById("page");
const nav = document.querySelector("nav");
let leave = () => {};

function view() {
  const [name, fields] = location.hash.slice(1).split("?");
  return { name: name in PAGES ? name : "tokens", fields: new URLSearchParams(fields) };
}

/** Replace the fields in the address, without a new entry in the history. */
function remember(fields) {
  const kept = Object.entries({ model: select.value, ...fields }).filter(([, value]) => value !== "");
  history.replaceState(null, "", `#${view().name}?${new URLSearchParams(kept)}`);
  updateLinks();
}

function updateLinks() {
  const { name } = view();
  for (const link of nav.children) {
    const own = link.dataset.page;
    link.href = `#${own}?${new URLSearchParams({ model: select.value })}`;
    if (own === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

async function show() {
  const { name, fields } = view();
  leave();
  leave = () => {};
  setProblem("");
  const asked = fields.get("model");
  if ([...select.options].some((option) => option.value === asked)) select.value = asked;
  updateLinks();
  document.title = `${PAGES[name].title} · tilth studio`;
  try {
    const page = await PAGES[name].load();
    main.replaceChildren();
    leave = page.show(main, { model: () => select.value, fields, remember }) ?? leave;
  } catch (error) {
    setProblem(error.message);
  }
}

for (const [name, { title }] of Object.entries(PAGES)) nav.append(el("a", { "data-page": name }, title));
try {
  const { data } = await api("/v1/models");
  select.replaceChildren(...data.map(({ id }) => el("option", { value: id }, id)));
  select.addEventListener("change", () => {
    remember({});
    show();
  });
  window.addEventListener("hashchange", show);
  await show();
} catch (error) {
  main.replaceChildren();
  setProblem(error.message);
}
