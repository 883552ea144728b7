// What was written and not sent is not lost by a slip: the browser asks before it leaves the page.

import { written } from "./patch.js";

const form = document.querySelector("form[data-guard]");
let sent = false;

form?.addEventListener("submit", () => (sent = true));
addEventListener("beforeunload", (event) => {
  if (!sent && written(document)) event.preventDefault();
});
addEventListener("pageshow", () => (sent = false));
// Who chooses a line wants to say something of it.
form?.addEventListener("change", (event) => {
  if (event.target.name === "at") form.elements.new.setAttribute("aria-label", `Comment on ${nameOf(event.target)}`);
});
// A printer is given the text of a comment, also where a browser has filled it in again, as after Back.
form?.addEventListener("input", (event) => keep(event.target));
addEventListener("pageshow", () => form?.querySelectorAll("[data-said] > textarea").forEach(keep));

function keep(field) {
  const note = field.closest("[data-said]");
  if (note) note.dataset.said = field.value;
}

function nameOf(choice) {
  const file = choice.closest("section.file")?.querySelector("h2")?.textContent ?? "";
  return `${file}, line ${choice.nextElementSibling?.textContent ?? ""}`;
}
