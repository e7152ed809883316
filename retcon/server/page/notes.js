// The Notes view: add, browse, find and delete.

import * as api from "./api.js";
import { $, el, many, say } from "./dom.js";
import { newest } from "./newest.js";
import { about } from "./recall.js";
import { plain } from "./text.js";

const PAGE = 50;

/** Start the view. `world` has scope(), failed(error), worked() and changed(). */
export function notesView(world) {
  let next = null;

  const jobs = newest(async ({ find, cursor, scope }, signal) => {
    const reply = find
      ? await api.search({ query: find, top_k: PAGE, ...scope }, signal)
      : await api.list({ limit: PAGE, cursor, ...scope }, signal);
    next = find ? null : (reply.next ?? null);
    const rows = reply.results.map((item) => row(item.note ?? item));
    if (cursor) $("list").append(...rows);
    else $("list").replaceChildren(...rows);
    if (cursor) rows[0]?.querySelector("button").focus();
    world.worked();
    counted(find);
  }, world.failed);

  function counted(find = $("find").value.trim()) {
    const shown = $("list").children.length;
    $("more").hidden = !next;
    $("notes-none").hidden = shown > 0;
    say($("notes-none"), find ? "No note matches." : "There are no notes here yet.");
    say($("notes-title"), shown ? `Notes (${shown}${next ? "+" : ""})` : "Notes");
  }

  const load = (cursor) => jobs.push({ find: $("find").value.trim(), cursor, scope: world.scope() }, { urgent: !cursor });

  function row(note) {
    const text = note.memory ?? "";
    const named = `Delete: ${text.slice(0, 60)}`;
    const button = el("button", { type: "button", class: "quiet", "aria-label": named }, "Delete");
    const meta = el("p", { class: "meta" }, el("span", { class: "about" }, about(note) || "note"), button);
    const item = el("li", { class: "note", "data-id": note.id }, meta, plain(text));
    button.addEventListener("click", () => remove(item, note.id, text));
    return item;
  }

  async function remove(item, id, text) {
    if (!(await confirmed(text))) return;
    try {
      await api.remove(id);
    } catch (error) {
      world.failed(error);
      return;
    }
    const after = item.nextElementSibling ?? item.previousElementSibling;
    item.remove();
    counted();
    (after?.querySelector("button") ?? $("notes-title")).focus();
    world.worked("The note is deleted.");
    world.changed();
  }

  async function add(event) {
    event.preventDefault();
    const text = $("note-text").value;
    const [speaker, session, timestamp] = ["speaker", "session", "when"].map((name) => $(`note-${name}`).value.trim());
    if (!text.trim()) return $("note-text").focus();
    try {
      await api.add(api.filled({ text, speaker, session, timestamp, ...world.scope() }));
    } catch (error) {
      return world.failed(error);
    }
    $("note-text").value = "";
    $("note-text").focus();
    world.worked("The note is added.");
    world.changed();
    return load();
  }

  $("add").addEventListener("submit", add);
  $("note-text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("add").requestSubmit();
  });
  $("more").addEventListener("click", () => load(next));
  let timer = 0;
  $("find").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => load(), 150);
  });
  return { load: () => load() };
}

/** Whether the person says so; Escape and Keep say no. */
function confirmed(text) {
  const dialog = $("confirm");
  const brief = [...text].slice(0, 200).join("");
  say($("confirm-text"), brief.length < text.length ? `${brief} … (${many(text.length, "character")})` : brief);
  dialog.returnValue = "keep";
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener("close", () => done(dialog.returnValue === "delete"), { once: true });
  });
}
