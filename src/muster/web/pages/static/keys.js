// Keys, those of `muster watch` where there is the same to do: `key_list.js` is made of its list.  What a key does is
// what a link or a button of the page does: it is pressed.  They can be switched off: who speaks to the machine would
// press them by accident.
import { KEYS } from "./key_list.js";
import { openPalette } from "./palette.js";

const OFF = "muster-keys-off";
const DOES = {
  press: (selector) => document.querySelector(selector)?.click(),
  focus: (selector) => document.querySelector(selector)?.focus(),
  open: (path) => location.assign(path),
  move: (by) => move(Number(by)),
  scroll: (by) => scroll(Number(by)),
  moves: () => moves(),
  help: () => help(),
};
const act = (key) => DOES[key.does](key.to);
let begun = "";

addEventListener("keydown", (event) => {
  if (event.key === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
    event.preventDefault();
    // At once: what is typed next is the palette's, and no key of the page.
    if (!document.querySelector("dialog[open]")) openPalette();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.closest("input, textarea, select, dialog[open]")) return;
  if (off() && event.key !== "?") return;
  const asked = begun ? `${begun} ${event.key}` : event.key;
  const found = KEYS.find(({ key }) => key === asked);
  begun = !begun && KEYS.some(({ key }) => key.startsWith(`${event.key} `)) ? event.key : "";
  if (!found) return;
  event.preventDefault();
  act(found);
});

function move(by) {
  const rows = [...document.querySelectorAll("[data-rows] > *, .needs > .need")].map((row) => row.querySelector("a")).filter(Boolean);
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + by))].focus();
}

function moves() {
  const card = document.activeElement.closest(".card") ?? document.querySelector(".card:has(details)");
  const details = card?.querySelector("details");
  if (!details) return;
  details.open = true;
  details.querySelector("button, a")?.focus();
}

// Whoever scrolls up stops following, as with the mouse.
function scroll(by) {
  const said = document.querySelector("ol.transcript");
  if (said) said.scrollTop += by * 0.8 * said.clientHeight;
}

function off() {
  return localStorage.getItem(OFF) !== null;
}

function help() {
  const dialog = document.getElementById("keys") ?? document.body.appendChild(made());
  dialog.showModal();
}

function made() {
  const dialog = element("dialog", { id: "keys", "aria-labelledby": "keys-title" });
  const list = element("ul", { class: "rows" });
  for (const key of KEYS.filter(({ does }) => does !== "help")) {
    const row = list.appendChild(element("li"));
    row.append(element("kbd", {}, key.key), key.says);
    const button = row.appendChild(element("button", { class: "quiet", type: "button", "aria-label": `Do it: ${key.says}` }, "Do it"));
    button.addEventListener("click", () => {
      dialog.close();
      act(key);
    });
  }
  const label = element("label");
  const box = label.appendChild(element("input", { type: "checkbox" }));
  box.checked = !off();
  box.addEventListener("change", () => (box.checked ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "yes")));
  label.append(" single keys do these things");
  const close = element("button", { type: "button" }, "Close");
  close.addEventListener("click", () => dialog.close());
  dialog.append(element("h2", { id: "keys-title" }, "Keys"), list, label, close);
  return dialog;
}

function element(name, attributes = {}, text = "") {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}
