// The end of what an agent says is followed, or not: as its reader has it, in this browser.

import { atEnd } from "./patch.js";

const OFF = "muster-follow-off";
const buttonOf = () => document.querySelector("[data-follow]");
const said = () => document.querySelector("ol.transcript");

document.addEventListener("replaced", begin);
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-follow]");
  if (button) follow(button, button.getAttribute("aria-pressed") === "false" || !atEnd(said()));
});
begin();

function begin() {
  const button = buttonOf();
  if (!button) return;
  button.hidden = false;
  follow(button, localStorage.getItem(OFF) === null);
}

function follow(button, wanted) {
  button.setAttribute("aria-pressed", String(wanted));
  if (wanted) localStorage.removeItem(OFF);
  else localStorage.setItem(OFF, "yes");
  if (wanted) said().scrollTop = said().scrollHeight;
}
