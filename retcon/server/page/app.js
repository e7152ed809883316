// The page as a whole: tabs, theme, whose notes, the error line, and the first look at the store.

import * as api from "./api.js";
import { $, el, say } from "./dom.js";
import { notesView } from "./notes.js";
import { recallView } from "./recall.js";
import { showReports } from "./report.js";

const TABS = ["recall", "notes", "report"];
const SCOPE = { user_id: "user", agent_id: "agent", run_id: "run" };

// -- what a reload keeps, in this tab only

const kept = (() => {
  try { return JSON.parse(sessionStorage.getItem("retcon-page")) ?? {}; } catch { return {}; }
})();

function remember(values) {
  Object.assign(kept, values);
  sessionStorage.setItem("retcon-page", JSON.stringify(kept));
}

// -- the line that says what went wrong

function failed(error) {
  $("error").hidden = false;
  say($("error"), error.message);
  if (error.status === 401 || error.status === 403) $("whose").open = true;
}

function worked(words) {
  $("error").hidden = true;
  say($("error"), "");
  if (words) say($("said"), words);
}

// -- whose notes

const scope = () => api.filled(Object.fromEntries(Object.entries(SCOPE).map(([name, id]) => [name, $(id).value.trim()])));

function showScope() {
  const named = Object.entries(scope())
    .map(([name, value]) => (name === "user_id" ? value : `${name.slice(0, -3)} ${value}`));
  say($("whose-now"), named.join(", ") || "all notes");
  say($("add-whose"), named.join(", ") || "nobody in particular");
}

function setScope(values) {
  for (const [name, id] of Object.entries(SCOPE)) $(id).value = values[name] ?? "";
  rescoped();
}

function rescoped() {
  showScope();
  remember({ scope: scope() });
  refresh();
}

// -- tabs

function openTab(name, { focus = false } = {}) {
  for (const each of TABS) {
    const tab = $(`tab-${each}`);
    tab.setAttribute("aria-selected", String(each === name));
    tab.tabIndex = each === name ? 0 : -1;
    $(each).hidden = each !== name;
  }
  if (focus) $(`tab-${name}`).focus();
  if (location.hash.slice(1) !== name) history.replaceState(null, "", `#${name}`);
  if (name === "notes") notes.load();
  if (name === "report") showReports(recall.budget(), failed);
}

function tabKeys(event) {
  const here = TABS.findIndex((name) => event.target.id === `tab-${name}`);
  const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: TABS.length - 1 }[event.key];
  if (here < 0 || to === undefined) return;
  event.preventDefault();
  openTab(TABS[(to + TABS.length) % TABS.length], { focus: true });
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
  box.hidden = false;
  try {
    const { results } = await api.list({ limit: 1, ...scope() });
    if ($("result").hidden) box.replaceChildren(...(results.length ? invitation() : welcome()));
    worked();
  } catch (error) {
    box.replaceChildren();
    failed(error);
  }
}

function invitation() {
  const told = el("p", {}, "Type a query, then drag the budget: the decision turns where raw notes stop fitting.");
  if (!kept.questions || scope().user_id !== kept.sample) return [told];
  const tries = kept.questions.map((question) => button(question, () => recall.ask(question), "quiet"));
  return [told, el("p", { class: "try" }, ...tries)];
}

function welcome() {
  const add = () => {
    openTab("notes");
    $("note-text").focus();
  };
  const sample = "Add a note, or load the sample: two months of an invented person’s talks, which ";
  return [
    el("h2", {}, Object.keys(scope()).length ? "No notes in this scope" : "No notes yet"),
    el("p", {}, sample, el("code", {}, "retcon demo"), " plays on the command line."),
    el("p", { class: "bar" }, button("Add a note", add, "main"), button("Load the sample", loadSample)),
  ];
}

const button = (text, onclick, look) => el("button", { type: "button", class: look, onclick }, text);

async function loadSample(event) {
  const pressed = event.target;
  pressed.disabled = true;
  say(pressed, "Loading …");
  try {
    const { user_id, notes: rows, questions } = await api.sample();
    const whose = await storeSample(rows, { user_id, ...scope() }, user_id);
    remember({ questions, sample: whose.user_id });
    worked("The sample is loaded.");
    setScope(whose);
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
  remember,
  idle,
  worked: (words) => {
    worked(words);
    $("empty").hidden = !$("result").hidden;
  },
  changed: () => recall.again(),
};

const recall = recallView(world, { query: kept.query ?? "", budget: kept.budget ?? 256 });
const notes = notesView(world);

function refresh() {
  recall.again();
  if (!$("notes").hidden) notes.load();
}

for (const name of TABS) $(`tab-${name}`).addEventListener("click", () => openTab(name));
document.querySelector("[role=tablist]").addEventListener("keydown", tabKeys);
$("theme").addEventListener("click", toggleTheme);
system.addEventListener("change", showTheme);
$("scope").addEventListener("submit", (event) => event.preventDefault());
$("scope").addEventListener("change", (event) => {
  if (event.target.id === "key") {
    api.useKey(event.target.value);
    refresh();
  } else rescoped();
});
$("whose").addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  $("whose").open = false;
  $("whose").querySelector("summary").focus();
});
window.addEventListener("hashchange", () => TABS.includes(location.hash.slice(1)) && openTab(location.hash.slice(1)));

$("key").value = api.currentKey();
for (const [name, id] of Object.entries(SCOPE)) $(id).value = kept.scope?.[name] ?? "";
showScope();
showTheme();
openTab(TABS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "recall");
recall.again();
