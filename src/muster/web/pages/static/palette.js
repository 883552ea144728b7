// Ctrl-K: the pages, what can be done on this one, and any task or plan by its name.

let dialog = null;

export function openPalette() {
  dialog ??= document.body.appendChild(made());
  const input = dialog.querySelector("input");
  input.value = "";
  list();
  dialog.showModal();
}

function commands() {
  const found = document.querySelectorAll("header.top nav a, [data-actions] a, [data-actions] button, footer form button");
  return [...found].map((one) => ({ name: one.textContent.trim(), act: () => one.click() }));
}

function list() {
  const input = dialog.querySelector("input");
  const asked = input.value.trim();
  const words = asked.toLowerCase().split(/\s+/);
  const found = commands().filter(({ name }) => words.every((word) => name.toLowerCase().includes(word)));
  if (asked) found.push({ name: `Open the task or plan ${asked}`, act: () => location.assign(`/find?q=${encodeURIComponent(asked)}`) });
  dialog.querySelector("ul").replaceChildren(...found.map(row));
  choose(0);
}

function row({ name, act }, at) {
  const option = element("li", { role: "option", id: `command-${at}`, "aria-selected": "false" }, name);
  option.addEventListener("click", () => {
    dialog.close();
    act();
  });
  return option;
}

const rows = () => [...dialog.querySelectorAll("[role=option]")];
const chosen = () => rows().findIndex((one) => one.getAttribute("aria-selected") === "true");

function choose(at) {
  const all = rows();
  all.forEach((one, here) => one.setAttribute("aria-selected", String(here === at)));
  all[at]?.scrollIntoView({ block: "nearest" });
  dialog.querySelector("input").setAttribute("aria-activedescendant", all[at]?.id ?? "");
}

function pressed(event) {
  const last = rows().length - 1;
  const at = chosen();
  const next = { ArrowDown: Math.min(last, at + 1), ArrowUp: Math.max(0, at - 1) }[event.key];
  if (next !== undefined) choose(next);
  else if (event.key === "Enter") rows()[at]?.click();
  else return;
  event.preventDefault();
}

function made() {
  const box = element("dialog", { id: "palette", "aria-label": "Commands" });
  const given = { type: "text", role: "combobox", "aria-label": "Command, task or plan", "aria-controls": "commands", "aria-expanded": "true", "aria-autocomplete": "list", autocomplete: "off" };
  const input = element("input", given);
  input.addEventListener("input", list);
  input.addEventListener("keydown", pressed);
  box.append(input, element("ul", { id: "commands", role: "listbox", "aria-label": "Commands" }));
  return box;
}

function element(name, attributes = {}, text = "") {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  return node;
}
