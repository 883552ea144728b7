// The end of what an agent says is followed, or not: as its reader has it, in this browser.

import { atEnd } from "./patch.js";

const OFF = "muster-follow-off";
const button = document.querySelector("[data-follow]");
const said = document.querySelector("ol.transcript");

if (button && said) {
  button.hidden = false;
  follow(localStorage.getItem(OFF) === null);
  button.addEventListener("click", () => follow(button.getAttribute("aria-pressed") === "false" || !atEnd(said)));
}

function follow(wanted) {
  button.setAttribute("aria-pressed", String(wanted));
  if (wanted) localStorage.removeItem(OFF);
  else localStorage.setItem(OFF, "yes");
  if (wanted) said.scrollTop = said.scrollHeight;
}
