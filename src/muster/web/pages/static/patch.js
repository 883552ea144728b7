// Brings what is on the page to what the server has sent, row by row, without taking anything out of the reader's
// hands: a field that is focused or was changed, an open <details>, a selection, the place where one has scrolled to.

export function patchPage(there, fresh) {
  let held = 0;
  document.title = fresh.title;
  renewForms(there, fresh);
  tellMeanwhile(there, fresh);
  endNote(there, fresh);
  for (const region of there.querySelectorAll("[data-live]")) {
    const next = fresh.querySelector(`[data-live="${CSS.escape(region.dataset.live)}"]`);
    if (next && ofSame(region) === ofSame(next)) held += patchRegion(region, next);
  }
  return held;
}

// Whoever has signed in again sends what stands in the page with the word of their new session.
function renewForms(there, fresh) {
  const word = fresh.querySelector("input[name=csrf]")?.value;
  if (word) for (const field of there.querySelectorAll("input[name=csrf]")) field.value = word;
}

// A question that is not asked any more stays while somebody writes an answer, and says so.
function tellMeanwhile(there, fresh) {
  const asked = [...fresh.querySelectorAll("form.answer")];
  for (const form of there.querySelectorAll("form.answer")) {
    const said = form.querySelector(".meanwhile");
    if (asked.some((one) => keyOf(one) === keyOf(form))) {
      said?.remove();
      continue;
    }
    const note = said ?? form.appendChild(document.createElement("p"));
    note.className = "meanwhile";
    note.setAttribute("role", "status");
    const text = whyNot(form, asked, fresh);
    if (note.textContent !== text) note.textContent = text;
  }
}

function whyNot(form, asked, fresh) {
  if (fresh.querySelector(`[data-asks="${CSS.escape(keyOf(form))}"]`)) return `You may not answer it any more: your role is ${roleOf(fresh)} now.`;
  const other = asked.some((one) => one.getAttribute("action") === form.getAttribute("action"));
  return `${other ? "It asks something else by now" : "Answered meanwhile, or ended"}: this is not taken any more.`;
}

// What a form has done is no news any more once things stand otherwise.
function endNote(there, fresh) {
  const note = there.querySelector(NOTE);
  const next = fresh.querySelector(NOTE);
  if (!note || !next || note.dataset.stands === next.dataset.stands) return;
  note.replaceChildren();
  note.dataset.stands = next.dataset.stands;
}

export const NOTE = "[data-key=done]";

const roleOf = (page) => page.querySelector("[data-role]")?.dataset.role ?? "another one";

const ROWS_MAX = 1000; // of what only grows ...
const CHARS_MAX = 2_000_000; // ... and of their text

// Whose words a region is a part of: those of one attempt are not mixed with those of another.
const ofSame = (region) => region.parentElement.closest("[data-as]")?.dataset.as;

// How many rows are kept back, because somebody is about to touch what stands where they would come.
function patchRegion(region, next) {
  if (region.isEqualNode(next)) return 0;
  if ("as" in region.dataset) return region.dataset.as === next.dataset.as ? 0 : replace(region, next);
  if ("append" in region.dataset) return append(region, next);
  return children(region, next, "rows" in region.dataset && inUse(region));
}

// Another attempt's words take the place of these, unless somebody reads them.  What is the same one's is patched by
// the regions within.
function replace(region, next) {
  const list = region.querySelector("[data-append]");
  if (region.querySelector(FOLLOW) || selects(region) || (list && !atEnd(list))) return 1;
  const within = region.contains(document.activeElement);
  const made = document.importNode(next, true);
  region.replaceWith(made);
  document.dispatchEvent(new Event("replaced"));
  if (within) made.querySelector("[data-follow]")?.focus();
  return 0;
}

const FOLLOW = "[data-follow][aria-pressed=false]";

export const atEnd = (region) => region.scrollHeight - region.scrollTop - region.clientHeight < 8;

// What the server is told of a page: what comes after that which it shows is all that it asks for of what only grows.
export function shownOf(page) {
  const next = page.querySelector("[data-append]")?.dataset.next;
  return next ? { "muster-shown": next } : {};
}

// What was said stays said; what is not at its end yet is drawn anew.  What does not come right after that which is
// shown takes its place, and there are not more rows than a browser can hold: who reads has them until then.
function append(region, next) {
  const follows = atEnd(region) && !region.ownerDocument.querySelector(FOLLOW);
  const fits = region.dataset.next === next.dataset.after;
  if (!follows && !(fits && sizeOf(region) < 2)) return keepBack(region);
  const drawnAnew = next.childElementCount ? /^(end|none)/ : /^end/;
  for (const row of [...region.children]) if (!fits || drawnAnew.test(keyOf(row))) row.remove();
  for (const row of next.children) region.append(document.importNode(row, true));
  region.dataset.next = next.dataset.next;
  if (!follows) return 0;
  shorten(region);
  region.scrollTop = region.scrollHeight;
  return 0;
}

const charsOf = new WeakMap();

// Of the rows that one has who follows.
function sizeOf(region) {
  let chars = 0;
  for (const row of region.children) {
    if (!charsOf.has(row)) charsOf.set(row, row.textContent.length);
    chars += charsOf.get(row);
  }
  return Math.max(region.childElementCount / ROWS_MAX, chars / CHARS_MAX);
}

function shorten(region) {
  const size = sizeOf(region);
  if (size <= 1) return;
  const rows = [...region.children].filter((row) => keyOf(row) !== "gap.top");
  let count = rows.length;
  let chars = rows.reduce((sum, row) => sum + charsOf.get(row), 0);
  for (const row of rows.slice(0, -1)) {
    if (count < ROWS_MAX && chars <= CHARS_MAX) break;
    count -= 1;
    chars -= charsOf.get(row);
    row.remove();
  }
  if (keyOf(region.firstElementChild) !== "gap.top") region.prepend(gapRow("gap.top", "Earlier lines are not shown here.", "From its beginning", region.dataset.whole));
}

function keepBack(region) {
  if (keyOf(region.lastElementChild) !== "end.more") region.append(gapRow("end.more", "More has come, and is shown once you follow.", "Show it", region.dataset.next));
  return 1;
}

function gapRow(key, words, text, href) {
  const row = document.createElement("li");
  row.className = "gap";
  row.dataset.key = key;
  row.append(`${words} `, Object.assign(document.createElement("a"), { href, textContent: text }));
  return row;
}

function inUse(region) {
  return region.matches(":hover") || region.querySelector(".dragged") || region.contains(document.activeElement) || selects(region);
}

function selects(node) {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && selection.containsNode(node, true);
}

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.dataset?.key : undefined);

const keyed = (parent) => parent.childElementCount > 0 && [...parent.children].every(keyOf);

function children(from, to, hold = false) {
  return keyed(from) && keyed(to) ? rows(from, to, hold) : plain(from, to);
}

function rows(from, to, hold) {
  const before = [...from.children];
  const known = new Map(before.map((row) => [keyOf(row), row]));
  const wanted = new Set([...to.children].map(keyOf));
  const kept = before.filter((row) => !wanted.has(keyOf(row)) && (hold || busy(row)));
  for (const row of before) if (!wanted.has(keyOf(row)) && !kept.includes(row)) row.remove();
  let held = kept.length;
  const order = [];
  for (const next of to.children) {
    const mine = known.get(keyOf(next));
    if (mine) node(mine, next);
    else if (hold) held += 1;
    if (!hold) order.push(mine ?? document.importNode(next, true));
  }
  if (hold) return held;
  const was = new Map(before.map((row, at) => [row, at]));
  for (const row of kept) order.splice(placeOf(row, order, was), 0, row);
  arrange(from, order);
  return held;
}

// Where a row stands that the server no longer has: with the fewest of its neighbours on another side than before.
function placeOf(row, order, was) {
  let place = 0;
  let least = 0;
  let wrong = 0;
  order.forEach((other, at) => {
    if (was.has(other)) wrong += was.get(other) < was.get(row) ? -1 : 1;
    if (wrong < least) [least, place] = [wrong, at + 1];
  });
  return place;
}

// Whoever is moved loses the focus, and what is marked: so all others are moved around the row that has it.
function arrange(from, order) {
  const fixed = order.find((row) => row.contains(document.activeElement)) ?? order.find(selects);
  const at = order.indexOf(fixed);
  let next = fixed;
  for (const row of order.slice(0, Math.max(0, at)).reverse()) {
    if (row.nextElementSibling !== next) from.insertBefore(row, next);
    next = row;
  }
  next = fixed ? fixed.nextElementSibling : from.firstElementChild;
  for (const row of order.slice(at + 1)) {
    if (row === next) next = next.nextElementSibling;
    else from.insertBefore(row, next);
  }
}

// One for one while they are alike, else the new ones take their place.
function plain(from, to) {
  const mine = [...from.childNodes];
  const next = [...to.childNodes];
  const alike = mine.length === next.length && mine.every((one, at) => one.nodeName === next[at].nodeName && keyOf(one) === keyOf(next[at]));
  if (alike) mine.forEach((one, at) => node(one, next[at]));
  else if (!busy(from)) from.replaceChildren(...next.map((one) => document.importNode(one, true)));
  return 0;
}

const KEPT = new Set(["open", "draggable"]); // the reader's own doing

function node(mine, next) {
  if (mine.isEqualNode(next)) return;
  if (mine.classList?.contains("dragged")) return;
  if (mine.nodeType !== Node.ELEMENT_NODE) {
    if (!selects(mine)) mine.nodeValue = next.nodeValue;
    return;
  }
  if (mine.matches("input, textarea, select")) {
    if (mine.type === "hidden") mine.value = next.value;
    return;
  }
  for (const { name } of [...mine.attributes]) if (!KEPT.has(name) && !next.hasAttribute(name)) mine.removeAttribute(name);
  for (const { name, value } of next.attributes) if (!KEPT.has(name) && mine.getAttribute(name) !== value) mine.setAttribute(name, value);
  children(mine, next);
}

function busy(element) {
  if (element.contains(document.activeElement) || selects(element)) return true;
  return unsent(element);
}

// Whether something was typed or ticked there that nobody has sent.
export function unsent(element) {
  if (written(element)) return true;
  return [...element.querySelectorAll("form textarea, form input")].some((one) => one.type !== "hidden" && (one.value !== one.defaultValue || one.checked !== one.defaultChecked));
}

// What a form that guards it has in its boxes was not sent, also where the server has drawn it.
export function written(element) {
  return [...element.querySelectorAll("form[data-guard] textarea")].some((one) => one.value.trim() !== "");
}
