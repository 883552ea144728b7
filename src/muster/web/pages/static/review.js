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

function nameOf(choice) {
  const file = choice.closest("section.file")?.querySelector("h2")?.textContent ?? "";
  return `${file}, line ${choice.nextElementSibling?.textContent ?? ""}`;
}
