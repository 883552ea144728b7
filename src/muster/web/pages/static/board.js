// A card that is dropped on a column asks the server to be moved there.  What that means, and whether it is possible,
// the server says: what it refuses is told with its reason, and the card is where it was.

import { change } from "./live.js";

const ANSWER_MS = 30000;
const told = document.getElementById("moved");
let card = null;
let unanswered = 0;

// Without scripts nothing can be dragged, so the server does not say that it could.
addEventListener("pointerdown", (event) => {
  const found = event.target.closest?.("li.card[data-moves]");
  if (found) found.draggable = true;
});

addEventListener("dragstart", (event) => {
  card = event.target.closest?.("li.card[data-moves]") ?? null;
  if (!card) return;
  event.dataTransfer.setData("text/plain", card.dataset.key);
  event.dataTransfer.effectAllowed = "move";
  event.dataTransfer.setDragImage(card, 10, 10);
  card.classList.add("dragged");
  const moves = card.dataset.moves.split(" ");
  for (const column of columns()) column.classList.toggle("open", moves.includes(column.dataset.column));
});

addEventListener("dragover", (event) => {
  if (card && columnOf(event)) event.preventDefault();
});

addEventListener("dragend", over);

addEventListener("drop", (event) => {
  const column = columnOf(event);
  if (!card || !column) return;
  event.preventDefault();
  const moved = card;
  over();
  if (!column.contains(moved)) change(() => move(moved, column));
});

const columns = () => document.querySelectorAll("section[data-column]");
const columnOf = (event) => event.target.closest?.("section[data-column]");

function over() {
  card?.classList.remove("dragged");
  card = null;
  for (const column of columns()) column.classList.remove("open");
}

async function move(moved, column) {
  const home = moved.parentElement;
  const next = moved.nextElementSibling;
  column.querySelector("ul").prepend(moved);
  moved.setAttribute("aria-busy", "true");
  if (unanswered === 0) unsay();
  unanswered += 1;
  const body = new URLSearchParams({ csrf: told.dataset.csrf, back: location.pathname + location.search, to: column.dataset.column, seq: moved.dataset.seq ?? "" });
  try {
    const answer = await fetch(`/tasks/${moved.dataset.key}/move`, { method: "POST", body, headers: { accept: "text/html" }, signal: AbortSignal.timeout(ANSWER_MS) });
    const there = new URL(answer.url);
    if (answer.ok && there.pathname !== location.pathname) return location.assign(answer.url); // it wants to know more
    if (answer.ok) return say(`${nameOf(moved)} is asked to go to ${titleOf(column)}.`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    say(page.querySelector("[data-why]")?.textContent ?? `refused: ${answer.status}`, true);
  } catch {
    say("The server did not answer. What it has done is shown as soon as it does.", true);
  } finally {
    unanswered -= 1;
  }
  if (moved.isConnected && home.isConnected) home.insertBefore(moved, next?.parentElement === home ? next : null);
  moved.removeAttribute("aria-busy");
}

const nameOf = (one) => one.querySelector("a")?.textContent ?? "It";
const titleOf = (column) => column.querySelector("h2 span").textContent;

function unsay() {
  told.textContent = "";
  told.classList.remove("warns");
}

// A late answer stands beside the answer to a later move, so that neither hides the other.
function say(text, refused = false) {
  told.textContent = told.textContent ? `${told.textContent} ${text}` : text;
  if (refused) told.classList.add("warns");
}
