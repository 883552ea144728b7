// Keys, the same as those of `muster watch` where there is the same to do.  What a key does is what a link or a button
// of the page does: it is pressed.  They can be switched off: who speaks to the machine would press them by accident.

const OFF = "muster-keys-off";
const press = (selector) => () => document.querySelector(selector)?.click();
const open = (path) => () => location.assign(path);
const KEYS = [
  ["j", "the next row", () => move(1)],
  ["k", "the row before", () => move(-1)],
  ["r", "retry this task", press('[data-actions] [action$="/retry"] button, [data-actions] a[href$="/retry"]')],
  ["c", "cancel this task or plan (asks first)", press('[data-actions] a[href$="/cancel"]')],
  ["p", "pause this task or plan, or resume it", press('[data-actions] [action$="/pause"] button, [data-actions] [action$="/resume"] button')],
  ["J", "scroll what an agent says down", () => scroll(1)],
  ["K", "scroll it up", () => scroll(-1)],
  ["f", "follow what it says, or stop that", press("[data-follow]")],
  ["m", "show the moves of this card, or of the first one", moves],
  ["a", "show tasks that have ended, or not", press("[data-all]")],
  ["/", "filter", () => document.querySelector(".filter input, .filter select")?.focus()],
  ["g o", "overview", open("/")],
  ["g t", "tasks", open("/tasks")],
  ["g p", "plans", open("/plans")],
  ["g i", "inbox", open("/inbox")],
  ["g d", "dead letter", open("/tasks?status=failed")],
  ["?", "these keys", help],
];
let begun = "";

addEventListener("keydown", async (event) => {
  if (event.key === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
    event.preventDefault();
    const { openPalette } = await import("./palette.js");
    if (!document.querySelector("dialog[open]")) openPalette();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.closest("input, textarea, select, dialog[open]")) return;
  if (off() && event.key !== "?") return;
  const asked = begun ? `${begun} ${event.key}` : event.key;
  const found = KEYS.find(([key]) => key === asked);
  begun = !begun && KEYS.some(([key]) => key.startsWith(`${event.key} `)) ? event.key : "";
  if (!found) return;
  event.preventDefault();
  found[2]();
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
  for (const [key, says, act] of KEYS.slice(0, -1)) {
    const row = list.appendChild(element("li"));
    row.append(element("kbd", {}, key), says);
    const button = row.appendChild(element("button", { class: "quiet", type: "button", "aria-label": `Do it: ${says}` }, "Do it"));
    button.addEventListener("click", () => {
      dialog.close();
      act();
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
