// The page as a whole: views, address, theme, whose notes, the key, the error line, and the first look at the store.

import * as address from "./address.js";
import * as api from "./api.js";
import { $, el, say } from "./dom.js";
import { notesView } from "./notes.js";
import { recallView } from "./recall.js";
import { showReports } from "./report.js";
import { toast } from "./toast.js";

const SCOPE = { user_id: "user", agent_id: "agent", run_id: "run" };
let view = "recall";

// -- the line that says what went wrong, and the gate where a key is needed

function failed(error) {
  if (error.status === 401) return closeGate(api.currentKey() ? `${error.message}. Is it all there?` : "");
  $("error").hidden = false;
  return say($("error"), error.message);
}

function worked(words) {
  $("error").hidden = true;
  say($("error"), "");
  if (words) say($("said"), words);
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

function showScope() {
  const named = Object.entries(scope()).map(([name, value]) => (name === "user_id" ? value : `${name.slice(0, -3)} ${value}`));
  say($("whose-now"), named.join(", ") || "everybody");
  say($("add-whose"), named.length ? `It will be ${named.join(", ")}’s.` : "It will belong to nobody in particular.");
}

function setScope(values) {
  for (const [name, id] of Object.entries(SCOPE)) $(id).value = values[name] ?? "";
  showScope();
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
  if (view === "notes" && name !== "notes") notes.leave();
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
  if (name === "report") showReports(recall.asked().budget, failed, worked);
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
    worked();
    box.replaceChildren(...((total ?? results.length) ? invitation() : welcome()));
    box.hidden = !$("result").hidden;
  } catch (error) {
    box.replaceChildren();
    failed(error);
  }
}

function invitation() {
  const told = "You get the text that an agent would be given: the best your notes have, never longer than the budget.";
  const tries = sampleQuestions().map((question) => button(question, () => recall.ask(question), "quiet"));
  const offered = tries.length ? [el("p", {}, "For example:"), el("p", { class: "try" }, ...tries)] : [];
  return [el("h2", {}, "Ask a question"), el("p", {}, told), ...offered];
}

function welcome() {
  const add = () => {
    openTab("notes");
    $("note-text").focus();
  };
  const told = "Memory is made of notes: things said or learned, one at a time. Add one, or look around with the sample, two months of an invented person’s talks.";
  return [
    el("h2", {}, Object.keys(scope()).length ? "No notes here" : "No notes yet"),
    el("p", {}, told),
    el("p", { class: "bar" }, button("Add a note", add, "main"), button("Load the sample", loadSample)),
  ];
}

const button = (text, onclick, look) => el("button", { type: "button", class: look, onclick }, text);

// -- the sample conversation

const kept = (() => {
  try { return JSON.parse(sessionStorage.getItem("retcon-sample")) ?? {}; } catch { return {}; }
})();

const sampleQuestions = () => (kept.questions && (scope().user_id ?? null) === kept.user_id ? kept.questions : []);

async function loadSample(event) {
  const pressed = event.target;
  pressed.disabled = true;
  say(pressed, "Loading …");
  try {
    const { user_id, notes: rows, questions } = await api.sample();
    const whose = await storeSample(rows, { user_id, ...scope() }, user_id);
    Object.assign(kept, { questions, user_id: whose.user_id ?? null });
    sessionStorage.setItem("retcon-sample", JSON.stringify(kept));
    setScope(whose);
    rescoped();
    toast(`The sample is loaded: ${rows.length} notes.`);
    $("query").focus();
  } catch (error) {
    pressed.disabled = false;
    say(pressed, "Load the sample");
    failed(error);
  }
}

/** Whose the notes became. A key that is bound to a scope may name neither another user nor ids: then without. */
async function storeSample(rows, whose, first) {
  const id = (name) => (whose.user_id === first ? name : `${whose.user_id}-${name}`); // ids are unique in a store
  const link = ({ supersedes }) => (supersedes ? { supersedes: id(supersedes) } : {});
  const named = rows.map((row) => ({ ...row, id: id(row.id), ...link(row) }));
  try {
    await api.add({ messages: named, ...whose });
    return whose;
  } catch (error) {
    if (error.status !== 403) throw error;
    await api.add({ messages: rows.map(({ id: _, supersedes: __, ...row }) => row), ...scope() });
    return scope();
  }
}

// -- start

const world = {
  scope,
  failed,
  idle,
  keep,
  welcome,
  worked: (words) => {
    worked(words);
    $("empty").hidden = !$("result").hidden;
  },
  changed: () => recall.again(),
};

const recall = recallView(world);
const notes = notesView(world);

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
$("scope").addEventListener("submit", (event) => event.preventDefault());
$("scope").addEventListener("change", rescoped);
$("whose").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  $("whose").open = false;
  $("whose").querySelector("summary").focus();
});
addEventListener("click", (event) => {
  if (!event.target.closest("#whose")) $("whose").open = false;
});
addEventListener("popstate", follow);
showKey();
showTheme();
follow();
