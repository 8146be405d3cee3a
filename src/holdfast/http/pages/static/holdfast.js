/* The one script of the pages: live parts, keys, copy. All pages work without it. */
"use strict";

const page = document.documentElement;
page.classList.add("scripted");
const spoken = document.getElementById("spoken");

/** Tell a screen reader something, politely. */
function say(text) {
  spoken.textContent = "";
  setTimeout(() => { spoken.textContent = text; }, 50);
}

/* Live parts ------------------------------------------------------------------------------------------ */

const pauseButton = document.querySelector("[data-pause]");
const lostWords = document.getElementById("lost");
const fresh = new Set();
let stream = null;
let retry = null;
let failures = 0;
let hasChanged = false;

const isPaused = () => sessionStorage.getItem("paused") === "yes";

/** True for a field that somebody has changed and not sent yet. */
function isEdited(field) {
  if (field.localName === "select") return [...field.options].some((one) => one.selected !== one.defaultSelected);
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  return field.value !== field.defaultValue;
}

/** Replace the inside of a part; keep the focus, open details and the scrolled place. A part in which somebody
 * writes stays as it is. */
function swap(element, html) {
  const next = document.createElement(element.localName === "tr" ? "tr" : "template");
  next.innerHTML = html;
  const source = next.content || next;
  if (element.innerHTML === next.innerHTML) return;
  if (element.contains(document.activeElement) && isTyping(document.activeElement)) return;
  if ([...element.querySelectorAll("input, select, textarea")].some(isEdited)) return;
  if (element.querySelector("form[data-typed]")) return; // it was refused, and has what was typed
  const focused = element.contains(document.activeElement) ? pathTo(element, document.activeElement) : null;
  const open = [...element.querySelectorAll("details[open]")].map((one) => pathTo(element, one));
  const scrolled = [...element.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  element.replaceChildren(...source.childNodes);
  for (const path of open) {
    const found = at(element, path);
    if (found && found.localName === "details") found.open = true;
  }
  [...element.querySelectorAll(".scroll")].forEach((one, index) => { one.scrollLeft = scrolled[index] || 0; });
  if (focused) {
    const found = at(element, focused);
    if (found) found.focus({ preventScroll: true });
  }
}

/** The place of a node in an element: its id, or the numbers of the children on the way. */
function pathTo(element, node) {
  if (node.id) return node.id;
  const path = [];
  for (let one = node; one !== element; one = one.parentElement) {
    path.unshift([...one.parentElement.children].indexOf(one));
  }
  return path;
}

function at(element, path) {
  if (typeof path === "string") return document.getElementById(path);
  return path.reduce((one, index) => one && one.children[index], element);
}

/** Take the parts that the server sends. Rows that are not on the page are counted, not inserted. The first
 * message has all parts: parts of the page that are not among them are gone since it was loaded. */
function take(message) {
  for (const [id, html] of Object.entries(message.parts)) {
    const element = document.getElementById(id);
    if (element) {
      markGone(element, false);
      swap(element, html);
    } else if (id.startsWith("row-")) fresh.add(id);
    else hasChanged = true;
  }
  for (const id of message.gone) {
    fresh.delete(id);
    markGone(document.getElementById(id), true);
  }
  if (message.all) {
    for (const one of document.querySelectorAll("[data-part]")) {
      if (!Object.hasOwn(message.parts, one.id)) markGone(one, true);
    }
  }
  showFresh();
  showLost(hasChanged ? "This page has changed." : "");
}

/** Say beside a part whether the server sends it no more: with words of the page, in the row, or for the page. */
function markGone(element, isGone) {
  if (!element) return;
  const words = element.parentElement.querySelector("[data-gone]");
  if (words) words.hidden = !isGone;
  else if (!element.id.startsWith("row-")) hasChanged = hasChanged || isGone;
  else if (isGone !== element.classList.contains("gone")) {
    element.classList.toggle("gone", isGone);
    if (!isGone) return;
    const note = document.createElement("small");
    note.className = "warn";
    note.textContent = " not updated any more";
    (element.querySelector("td:nth-child(2)") || element).append(note);
  }
}

function showFresh() {
  const line = document.getElementById("fresh");
  if (line && !fresh.size) line.hidden = true;
  if (!line || !fresh.size || line.dataset.count === String(fresh.size)) return;
  line.dataset.count = String(fresh.size);
  const words = fresh.size === 1 ? "1 new row" : `${fresh.size} new rows`;
  line.querySelector("[data-words]").textContent = words;
  line.hidden = false;
  say(words);
}

function connect() {
  clearTimeout(retry);
  if (stream || isPaused() || document.hidden || !("live" in document.body.dataset)) return;
  stream = new EventSource(document.body.dataset.live);
  stream.onmessage = (event) => { failures = 0; take(JSON.parse(event.data)); };
  stream.addEventListener("end", () => { disconnect(); showLost("This page is not updated any more."); });
  stream.onerror = () => {
    failures += 1;
    const isRefused = stream && stream.readyState === EventSource.CLOSED;
    if (isRefused || failures > 1) showLost("The connection is lost: what you see may be old.");
    if (isRefused) {
      disconnect();
      retry = setTimeout(connect, 5000);
    }
  };
}

/** Say that the page does not change any more; an empty text takes it back. */
function showLost(words) {
  if (!lostWords) return;
  const line = lostWords.querySelector("[data-words]");
  if (lostWords.hidden === !words && line.textContent === words) return;
  line.textContent = words;
  lostWords.hidden = !words;
  if (words) say(words);
}

function disconnect() {
  clearTimeout(retry);
  if (stream) stream.close();
  stream = null;
}

function showPause() {
  if (!pauseButton) return;
  pauseButton.setAttribute("aria-pressed", String(isPaused()));
  pauseButton.textContent = isPaused() ? "Updates are paused" : "Pause updates";
}

function togglePause() {
  sessionStorage.setItem("paused", isPaused() ? "no" : "yes");
  showPause();
  showLost("");
  if (isPaused()) disconnect();
  else connect();
  say(isPaused() ? "live updates are paused" : "live updates go on");
}

if (pauseButton) {
  pauseButton.addEventListener("click", togglePause);
  // A browser has few connections to one host: a page that nobody sees needs none.
  document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", connect);
  showPause();
  connect();
}

/* Forms: a second click sends nothing again --------------------------------------------------------------- */

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if ("sent" in form.dataset) event.preventDefault();
  form.dataset.sent = "";
  setTimeout(() => { delete form.dataset.sent; }, 3000);
});

/* The pages are one line on a phone: show the present one. */
const here = document.querySelector(".top nav [aria-current]");
if (here) here.scrollIntoView({ inline: "center", block: "nearest" });

/* Copy ------------------------------------------------------------------------------------------------ */

/** Copy a text; without HTTPS a browser has no clipboard for scripts, and the old way is used. */
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) {
    const text = button.dataset.copy;
    await copy("copyLink" in button.dataset ? new URL(text, location.href).href : text);
    const before = button.dataset.label || button.textContent;
    button.dataset.label = before;
    button.textContent = "copied";
    say("copied");
    setTimeout(() => { button.textContent = before; }, 1500);
  }
  if (event.target.closest("[data-help]")) document.getElementById("help").showModal();
});

/* Keys ------------------------------------------------------------------------------------------------ */

const isTyping = (element) => element.isContentEditable || /^(input|select|textarea)$/.test(element.localName);

function move(step) {
  const rows = [...document.querySelectorAll(".row")].filter((one) => one.querySelector("a, button"));
  if (!rows.length) return;
  const now = rows.findIndex((one) => one.contains(document.activeElement));
  const next = now < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, now + step));
  rows[next].querySelector("a, button").focus();
}

const keys = {
  "/": () => { const field = document.querySelector("[data-search]"); if (field) field.focus(); },
  "j": () => move(1),
  "k": () => move(-1),
  "p": () => { if (pauseButton) togglePause(); },
  "?": () => document.getElementById("help").showModal(),
};

document.addEventListener("keydown", (event) => {
  if (document.body.dataset.keys !== "on" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (isTyping(event.target) || document.querySelector("dialog[open]") || !Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
});
