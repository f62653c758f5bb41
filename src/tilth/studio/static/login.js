// The page that asks for the token; the server keeps it in a cookie that scripts cannot read.

import { action, api } from "./common.js";

const form = document.querySelector("form");
const input = form.elements.token;

form.addEventListener("submit", action(form.querySelector("button"), async () => {
  try {
    await api("/login", { token: input.value });
  } finally {
    input.value = "";
  }
  location.replace(`/${location.hash}`); // the view that was asked for
}));
input.focus();
