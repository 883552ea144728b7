// The server says how things stand.  Where that is not what the page was drawn of it asks for itself again, at most
// four times a second and for a tenth of its server's time, and is patched.  A tab that nobody sees is not connected, and
// looks when it is seen again.  A form that stands still only learns whether it can still be sent.

import { NOTE, patchPage, shownOf, unsent } from "./patch.js";

const CALM_MS = 250;
const AGAIN_MS = 1000;
const HELD_MS = 2000;
const SHARE_MAX = 0.1;
const STREAMS_MAX = 4; // of one browser: it has six connections to a server, and the next page needs one
const GLANCE_MS = 5000;
const TWICE_MS = 5000;
const SILENT_MS = 10_000; // its server is heard every 5 s, also when it has no news
const LOST_MS = 500; // a page that is being left loses its stream first: that is no news
const badge = document.getElementById("link");
let { stream: address, seen } = document.body.dataset;
const { still } = document.body.dataset;
let stream = null;
let joining = false;
let leavePlace = null; // to another page of this browser
let asking = false;
let wanted = false;
let lastMs = 0;
let tookMs = 0;
let timer = null;
let heard = new Date();
let retry = null;
let losing = null;
let silence = null; // until it is taken for lost
let held = 0; // rows that are not shown yet
let out = false; // nobody is asked anything before somebody has signed in again
let pressed = null; // until what is pressed is released: a drag or a click begins with what lies below the pointer
let release = null;
let changing = 0; // of what the reader has changed here: what the server has not answered yet
let outdated = false; // something was answered since the page was asked for

// What a form has done is said once: neither a reload, nor Back, nor who is sent this address is told it again.
const here = new URL(location.href);
if (here.searchParams.has("done")) {
  here.searchParams.delete("done");
  history.replaceState(history.state, "", here);
}
addEventListener("pageshow", ({ persisted }) => persisted && document.querySelector(NOTE)?.replaceChildren());

function say(text, stale = false) {
  if (badge.textContent !== text) badge.textContent = text;
  badge.classList.toggle("stale", stale);
}

function lost() {
  losing ??= setTimeout(() => say(`${still ? "no answer" : "stale"} since ${heard.toISOString().slice(11, 19)} UTC`, true), LOST_MS);
}

function notLost() {
  clearTimeout(losing);
  losing = null;
}

function hear() {
  notLost();
  heard = new Date();
  if (still) say("");
  else say(held ? `live, ${held} not shown while you point there` : "live");
}

// What was typed stays for whoever signs in again; without that the door is shown, which leads back here.
function leave() {
  out = true;
  notLost();
  disconnect();
  const door = `/enter?back=${encodeURIComponent(location.pathname + location.search)}`;
  if (!unsent(document)) return location.replace(door);
  say("signed out; what you typed stays here: ", true);
  const link = badge.appendChild(document.createElement("a"));
  Object.assign(link, { href: door, target: "_blank", rel: "noopener", textContent: "sign in in a new tab" });
}

function soon() {
  wanted = true;
  if (timer === null && !asking) timer = setTimeout(ask, Math.max(0, lastMs + Math.max(CALM_MS, tookMs / SHARE_MAX) - Date.now()));
}

// Until the server has answered what was changed here, no page is shown that may not have it.
export async function change(act) {
  changing += 1;
  try {
    return await act();
  } finally {
    changing -= 1;
    outdated = true;
    soon();
  }
}

async function ask() {
  timer = null;
  if (document.hidden) return;
  asking = true;
  wanted = outdated = false;
  lastMs = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html", ...shownOf(document) }, credentials: "same-origin" });
    if (answer.status === 401) return leave();
    out = false;
    if (!answer.ok) throw new Error(String(answer.status));
    tookMs = Date.now() - lastMs;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    await pressed;
    if (changing || outdated) return; // it may be from before that
    held = patchPage(document, fresh);
    ({ seen } = fresh.body.dataset);
    hear();
    if (!still) follow(fresh.body.dataset.stream);
    if (retry === null) connect();
    if (held) setTimeout(soon, HELD_MS);
  } catch {
    lost();
    setTimeout(soon, AGAIN_MS);
  } finally {
    asking = false;
    if (wanted) soon();
  }
}

const needsNone = () => stream || out || document.hidden || !address;

// Where other pages of this browser have all places, this one only looks now and then.
async function connect() {
  if (joining || needsNone()) return;
  joining = true;
  const stays = await takePlace();
  joining = false;
  if (needsNone()) return disconnect();
  stream = new EventSource(address);
  listen();
  let told = null;
  stream.addEventListener("moved", ({ data }) => {
    listen();
    if (asking && data === told) return; // what is asked for has it
    told = data;
    if ((still || JSON.parse(data) === seen) && !asking) hear();
    else soon();
    if (stays) return;
    disconnect();
    later(connect, GLANCE_MS);
  });
  stream.onerror = () => {
    lost();
    // A stream that was refused is not opened again by itself, and does not say why: its page does.
    if (stream.readyState === EventSource.CLOSED) {
      disconnect();
      later(soon, AGAIN_MS);
    }
  };
}

// A server that hangs, or whose host is gone, ends no stream: another one is opened, which it answers once it is back.
function listen() {
  clearTimeout(silence);
  silence = setTimeout(() => {
    lost();
    disconnect();
    later(connect, AGAIN_MS);
  }, SILENT_MS);
}

function later(act, ms) {
  clearTimeout(retry);
  retry = setTimeout(() => {
    retry = null;
    act();
  }, ms);
}

// The browser gives a place back by itself when a page is gone.  Where others could listen (http) it has no places.
async function takePlace() {
  if (!navigator.locks) return true;
  for (let number = 0; number < STREAMS_MAX && !leavePlace; number += 1) {
    await new Promise((known) => {
      const held = (lock) => {
        if (lock) return new Promise((leave) => known((leavePlace = leave)));
        known();
      };
      navigator.locks.request(`muster-stream-${number}`, { ifAvailable: true }, held).catch(known);
    });
  }
  return leavePlace !== null;
}

// A page that shows another attempt than before wants to know what that one prints.
function follow(next) {
  if (next === address) return;
  address = next;
  disconnect();
  connect();
}

function disconnect() {
  clearTimeout(silence);
  stream?.close();
  leavePlace?.();
  stream = leavePlace = null;
}

addEventListener("pointerdown", () => (pressed ??= new Promise((done) => (release = () => setTimeout(done))))); // the click comes first
for (const end of ["pointerup", "pointercancel", "dragend", "blur"]) {
  addEventListener(end, () => {
    release?.();
    pressed = release = null;
  });
}

// Who comes back to this page may have signed in with another one.
function look() {
  if (out) soon();
  else connect();
}

document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : look()));
addEventListener("focus", look);
addEventListener("pagehide", () => {
  notLost();
  disconnect();
});
// A double click would leave the answer for the one to the second: that it was sent already.
const sentMs = new WeakMap();
addEventListener("submit", (event) => {
  if (!event.target.matches("[data-once]")) return;
  if (Date.now() - (sentMs.get(event.target) ?? 0) < TWICE_MS) event.preventDefault();
  else sentMs.set(event.target, Date.now());
});
addEventListener("pageshow", look);
connect();
if (document.body.dataset.again) setTimeout(() => location.reload(), 2 * AGAIN_MS); // nobody was up
