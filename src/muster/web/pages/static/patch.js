// Brings what is on the page to what the server has sent, row by row, without taking anything out of the reader's
// hands: a field that is focused or was changed, an open <details>, a selection, the place where one has scrolled to.

export function patchPage(there, fresh) {
  let held = 0;
  document.title = fresh.title;
  for (const region of there.querySelectorAll("[data-live]")) {
    const next = fresh.querySelector(`[data-live="${CSS.escape(region.dataset.live)}"]`);
    if (next && ofSame(region) === ofSame(next)) held += patchRegion(region, next);
  }
  return held;
}

const ROWS_MAX = 1000; // of what only grows

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

// What was said stays said; what is not at its end yet is drawn anew.
function append(region, next) {
  const follows = atEnd(region) && !region.ownerDocument.querySelector(FOLLOW);
  for (const row of [...region.children]) if (/^(end|none)/.test(keyOf(row))) row.remove();
  const known = new Set([...region.children].map(keyOf));
  for (const row of next.children) if (!known.has(keyOf(row))) region.append(document.importNode(row, true));
  if (!follows) return 0;
  while (region.childElementCount > ROWS_MAX) region.firstElementChild.remove();
  region.scrollTop = region.scrollHeight;
  return 0;
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
  const known = new Map([...from.children].map((row) => [keyOf(row), row]));
  const wanted = new Set([...to.children].map(keyOf));
  let held = 0;
  for (const [key, row] of known) {
    if (wanted.has(key)) continue;
    if (hold || busy(row)) held += 1;
    else row.remove();
  }
  let at = from.firstElementChild;
  for (const next of to.children) {
    const mine = known.get(keyOf(next));
    if (mine) node(mine, next);
    if (hold) held += mine ? 0 : 1;
    else if (mine && mine === at) at = at.nextElementSibling;
    else from.insertBefore(mine ?? document.importNode(next, true), at);
  }
  return held;
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
  return [...element.querySelectorAll("textarea, input")].some((one) => one.type !== "hidden" && (one.value !== one.defaultValue || one.checked !== one.defaultChecked));
}
