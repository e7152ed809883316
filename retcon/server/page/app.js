// The page as a whole: views, address, theme, whose notes, the key, the error line, and the first look at the store.

import * as address from "./address.js";
import * as api from "./api.js";
import { $, el, say } from "./dom.js";
import { notesView } from "./notes.js";
import { recallView } from "./recall.js";
import { showReports } from "./report.js";
import { hide, toast } from "./toast.js";

const SCOPE = { user_id: "user", agent_id: "agent", run_id: "run" };
let view = "recall";

// -- the line that says what went wrong, and the gate where a key is needed

const wrong = $("error"); // it stands where it belongs, and may leave the page with a row
const [wrongSaid, wrongRetry] = wrong.children;
let owner = null; // what the error is about: a view, or "form"

/** Say what went wrong at the end of `at`, or on top; `retry` is offered where the same may work a moment later. */
function failed(error, { at = null, retry = null, of = view } = {}) {
  if (error.status === 401) return closeGate(api.currentKey() ? `${error.message}. Is it all there?` : "");
  owner = of;
  say(wrongSaid, "");
  const place = $("whose").open ? $("scope") : at;
  if (place?.checkVisibility()) place.append(wrong);
  else $("main").prepend(wrong);
  wrongRetry.hidden = !retry || !(error.status === 0 || error.status >= 429);
  wrongRetry.onclick = () => {
    worked(of);
    retry();
  };
  wrong.hidden = false;
  say(wrongSaid, error.message);
  return wrong.scrollIntoView({ block: "nearest" });
}

/** What is said to be wrong with this, or with anything, is so no more. */
function worked(of = owner) {
  if (of !== owner) return;
  wrong.hidden = true;
  say(wrongSaid, "");
}

/** Ask for a key; `why` says what was wrong with the one before. */
function closeGate(why) {
  worked();
  setGate(true);
  say($("gate-said"), why);
  $("key").setAttribute("aria-invalid", String(Boolean(why)));
  $("key").focus();
}

function setGate(closed) {
  $("gate").hidden = !closed;
  $("views").hidden = closed;
  document.body.classList.toggle("gated", closed);
}

async function openGate(event) {
  event.preventDefault();
  const given = $("key").value.trim();
  if (!given) return closeGate("Paste a key first.");
  api.useKey(given);
  try {
    await api.list({ limit: 1 });
  } catch (error) {
    if (error.status === 401) api.useKey("");
    return closeGate(error.status === 401 ? `${error.message}. Is it all there?` : error.message);
  }
  setGate(false);
  $("key").value = "";
  showKey();
  refresh();
  return (view === "recall" ? $("query") : $(`tab-${view}`)).focus();
}

function showKey() {
  $("key-kept").hidden = !api.currentKey();
  showScope();
}

function forget() {
  api.useKey("");
  showKey();
  $("whose").open = false;
  for (const id of ["list", "candidates", "packed"]) $(id).replaceChildren();
  closeGate("");
}

// -- whose notes

const scope = () => api.filled(Object.fromEntries(Object.entries(SCOPE).map(([name, id]) => [name, $(id).value.trim()])));

const names = () => Object.entries(scope()).map(([name, value]) => (name === "user_id" ? value : `${name.slice(0, -3)} ${value}`)).join(", ");

/** A key may see some notes only, and the server does not say whose. */
function showScope() {
  const [keyed, named] = [Boolean(api.currentKey()), names()];
  say($("whose-now"), named || (keyed ? "all your key may see" : "everybody"));
  const own = keyed ? "It will be of those whose notes your key is for." : "It will belong to nobody in particular.";
  say($("add-whose"), named ? `It will be ${named}’s.` : own);
  const of = keyed ? "Whose notes to use, of those that your key may see." : "Whose notes to use.";
  say($("whose-hint"), `${of} An empty field leaves nobody out.`);
}

function setScope(values) {
  for (const [name, id] of Object.entries(SCOPE)) $(id).value = values[name] ?? "";
  showScope();
}

function closeWhose() {
  $("whose").open = false;
  $("whose").querySelector("summary").focus();
}

function rescoped() {
  showScope();
  keep({ push: true });
  refresh();
}

// -- the address

const keep = (how) => address.write({ view, ...recall.asked(), ...scope() }, how);

/** Show what the address says: at the start, and at every step back or forth. */
function follow() {
  const { view: wanted, query, budget, ...whose } = address.read();
  setScope(whose);
  recall.set({ query, budget });
  show(wanted);
}

// -- views

function show(name) {
  if (view !== name) {
    notes.leave();
    hide();
    worked();
  }
  view = name;
  for (const each of address.VIEWS) {
    const tab = $(`tab-${each}`);
    tab.setAttribute("aria-selected", String(each === name));
    tab.tabIndex = each === name ? 0 : -1;
    $(each).hidden = each !== name;
  }
  document.title = `retcon: ${name}`;
  if (name === "recall") recall.shown();
  if (name === "notes") notes.load();
  if (name === "report") showReports(recall.asked().budget, failed, () => worked("report"));
}

function openTab(name, { focus = false } = {}) {
  show(name);
  if (focus) $(`tab-${name}`).focus();
  keep({ push: true });
}

function tabKeys(event) {
  const here = address.VIEWS.findIndex((name) => event.target.id === `tab-${name}`);
  const last = address.VIEWS.length;
  const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: last - 1 }[event.key];
  if (here < 0 || to === undefined) return;
  event.preventDefault();
  openTab(address.VIEWS[(to + last) % last], { focus: true });
}

function refresh() {
  recall.again();
  if (view !== "recall") show(view);
}

// -- light and dark

const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";

function showTheme() {
  const other = isDark() ? "Light" : "Dark";
  say($("theme"), other);
  $("theme").setAttribute("aria-label", `Switch to ${other.toLowerCase()}`);
}

function toggleTheme() {
  root.dataset.theme = isDark() ? "light" : "dark";
  try { localStorage.setItem("retcon-theme", root.dataset.theme); } catch { /* then only for now */ }
  showTheme();
}

// -- an empty store, or an empty query

async function idle() {
  const box = $("empty");
  try {
    const { total, results } = await api.list({ limit: 1, ...scope() });
    const questions = await sampleQuestions(results[0]);
    worked("recall");
    box.replaceChildren(...((total ?? results.length) ? invitation(questions) : welcome()));
    box.hidden = !$("result").hidden;
  } catch (error) {
    box.replaceChildren();
    failed(error, { at: $("ask"), retry: idle, of: "recall" });
  }
}

function invitation(questions) {
  const told = "You get the text that an agent would be given: the best your notes have, never longer than the budget.";
  const tries = questions.map((question) => button(question, () => recall.ask(question), "quiet"));
  const offered = tries.length ? [el("p", {}, "For example:"), el("p", { class: "try" }, ...tries)] : [];
  return [el("h2", {}, "Ask a question"), el("p", {}, told), ...offered];
}

function welcome() {
  const add = () => {
    openTab("notes");
    $("note-text").focus();
  };
  const everybody = () => {
    setScope({});
    rescoped();
  };
  const named = names();
  const told = "Memory is made of notes: things said or learned, one at a time. Add one, or look around with the sample, two months of an invented person’s conversations.";
  const whose = named && el("p", {}, `You look at the notes of ${named} only: there are none. `, button("Look at all notes", everybody, "link"));
  const write = view === "notes" ? null : button("Add a note", add, "main"); // the form stands there
  return [
    el("h2", {}, named ? "No notes here" : "No notes yet"),
    ...(whose ? [whose] : []),
    el("p", {}, told),
    el("p", { class: "bar" }, write, button("Load the sample", loadSample)),
  ];
}

const button = (text, onclick, look) => el("button", { type: "button", class: look, onclick }, text);

// -- the sample conversation

let given = null; // the sample, once it was asked for

/** Questions to try, if the first note that is seen is the sample's first. */
async function sampleQuestions(first) {
  if (first?.session !== "s01") return [];
  given ??= await api.sample();
  return first.memory === given.notes[0].text ? given.questions : [];
}

async function loadSample(event) {
  const pressed = event.target;
  pressed.disabled = true;
  say(pressed, "Loading …");
  try {
    given ??= await api.sample();
    const { user_id, notes: rows } = given;
    const [whose, corrected] = await storeSample(rows, { user_id, ...scope() }, user_id);
    setScope(whose);
    rescoped();
    const older = corrected ? `, and ${corrected} older versions that were corrected` : "";
    toast(`The sample is loaded: ${rows.length - corrected} notes${older}.`);
    (view === "notes" ? $("notes-title") : $("query")).focus();
  } catch (error) {
    pressed.disabled = false;
    say(pressed, "Load the sample");
    failed(error, { at: pressed.closest(".empty"), of: "form" });
  }
}

/** Whose the notes became, and how many of them are corrected by others. A key that is bound to a scope may name neither another user nor ids: then without. */
async function storeSample(rows, whose, first) {
  const id = (name) => (whose.user_id === first ? name : `${whose.user_id}-${name}`); // ids are unique in a store
  const link = ({ supersedes }) => (supersedes ? { supersedes: id(supersedes) } : {});
  const named = rows.map((row) => ({ ...row, id: id(row.id), ...link(row) }));
  try {
    await api.add({ messages: named, ...whose });
    return [whose, rows.filter(({ supersedes }) => supersedes).length];
  } catch (error) {
    if (error.status !== 403) throw error;
    await api.add({ messages: rows.map(({ id: _, supersedes: __, ...row }) => row), ...scope() });
    return [scope(), 0];
  }
}

// -- start

const world = {
  scope,
  failed,
  idle,
  keep,
  welcome,
  worked,
  changed: () => recall.again(),
};

const recall = recallView({
  ...world,
  failed: (error, how) => {
    $("empty").hidden = true;
    failed(error, { of: "recall", ...how });
  },
  worked: () => {
    worked("recall");
    $("empty").hidden = !$("result").hidden;
  },
});
const notes = notesView({ ...world, failed: (error, how) => failed(error, { of: "notes", ...how }), worked: (of = "notes") => worked(of) });

for (const name of address.VIEWS) $(`tab-${name}`).addEventListener("click", () => openTab(name));
document.querySelector("[role=tablist]").addEventListener("keydown", tabKeys);
$("theme").addEventListener("click", toggleTheme);
system.addEventListener("change", showTheme);
$("gate-form").addEventListener("submit", openGate);
$("key-show").addEventListener("click", () => {
  const shown = $("key").type === "text";
  $("key").type = shown ? "password" : "text";
  $("key-show").setAttribute("aria-pressed", String(!shown));
});
$("forget").addEventListener("click", forget);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address holds the question
  $("main").focus();
});
$("scope").addEventListener("submit", (event) => {
  event.preventDefault();
  closeWhose();
});
$("whose").addEventListener("toggle", () => {
  if (!$("whose").open && $("scope").contains(wrong)) $("main").prepend(wrong);
});
$("scope").addEventListener("change", rescoped);
$("whose").addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeWhose();
});
addEventListener("click", (event) => {
  if (!event.target.closest("#whose")) $("whose").open = false;
});
addEventListener("popstate", follow);
showKey();
showTheme();
follow();
