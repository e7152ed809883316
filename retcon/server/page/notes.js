// The Notes view: add, browse the newest first, find, correct, look at earlier versions, and delete with a way back.

import * as api from "./api.js";
import { deletes } from "./deletes.js";
import { $, el, many, say } from "./dom.js";
import { newest } from "./newest.js";
import { about, moment, plain } from "./text.js";
import { toast } from "./toast.js";

const PAGE = 50;

/** Start the view. `world` has scope(), failed(error), worked(), welcome() and changed(). */
export function notesView(world) {
  let next = null;
  let total = null;
  let added = null; // the id of the note that was just added: its row stands out
  const held = deletes({
    failed: world.failed,
    sent: () => {
      world.worked();
      world.changed();
    },
  });

  const jobs = newest(async ({ find, cursor, scope, focus }, signal) => {
    const reply = find
      ? await api.search({ query: find, top_k: PAGE, ...scope }, signal)
      : await api.list({ limit: PAGE, order: "newest", cursor, ...scope }, signal);
    next = find ? null : (reply.next ?? null);
    if (!find) total = reply.total;
    const rows = reply.results.map((item) => row(item.note ?? item));
    if (cursor) $("list").append(...rows);
    else $("list").replaceChildren(...rows);
    if (focus) rows[0]?.querySelector("button").focus();
    world.worked();
    counted(find);
  }, world.failed);

  const load = (cursor) =>
    jobs.push({ find: $("find").value.trim(), cursor, scope: world.scope(), focus: Boolean(cursor) }, { urgent: !cursor });

  function counted(find = $("find").value.trim()) {
    const shown = $("list").querySelectorAll(":scope > li:not([hidden])").length;
    const all = total === null ? shown : total - $("list").querySelectorAll(":scope > li[hidden]").length;
    $("more").hidden = !next;
    say($("notes-title"), find ? `${many(shown, "note")} found` : many(all, "note"));
    $("notes-none").hidden = shown > 0;
    if (shown) $("notes-none").replaceChildren();
    else if (find) $("notes-none").replaceChildren(el("p", {}, `No note has a word of “${find}”.`));
    else $("notes-none").replaceChildren(...empty());
  }

  const empty = () =>
    Object.keys(world.scope()).length
      ? [el("p", {}, "There are no notes here. Add one, or change whose notes you look at, at the top.")]
      : [el("p", {}, "There are no notes yet. Write the first one above: a fact, a wish, something that was said.")];

  // -- one note

  function row(note) {
    const brief = (note.memory ?? "").slice(0, 60);
    const action = (word, act) => {
      const button = el("button", { type: "button", class: "link", "aria-label": `${word}: ${brief}` }, word);
      button.addEventListener("click", act);
      return button;
    };
    const look = note.id === added ? "note fresh" : "note";
    const item = el("li", { class: look, "data-id": note.id, hidden: held.has(note.id) });
    const past = note.supersedes && action("History", () => versions(item, note, past));
    const body = el("div", { class: "body" }, plain(note.memory ?? ""));
    const tools = el(
      "p",
      { class: "meta" },
      el("span", { class: "about" }, [about(note), note.supersedes && "corrected"].filter(Boolean).join(" · ")),
      action("Correct", () => edit(item, note)),
      past || null,
      action("Delete", () => remove(item, note)),
    );
    item.append(body, tools);
    return item;
  }

  function remove(item, note) {
    const seen = [...$("list").children].filter((each) => !each.hidden);
    const place = seen.indexOf(item);
    const after = seen[place + 1] ?? seen[place - 1];
    item.hidden = true;
    held.hold({
      id: note.id,
      text: note.memory ?? "",
      restore: () => {
        item.hidden = false;
        counted();
        if (item.isConnected && !$("notes").hidden) item.querySelector("button")?.focus();
        else if (!$("notes").hidden) load();
      },
    });
    counted();
    (after?.querySelector(".meta button:last-child") ?? $("notes-title")).focus();
  }

  async function edit(item, note) {
    try {
      if (note.truncated) note = { ...note, ...(await api.get(note.id)), truncated: false };
    } catch (error) {
      return world.failed(error);
    }
    const [body, tools] = item.children;
    const box = el("textarea", { rows: "4", "aria-label": "Corrected text" });
    box.value = note.memory;
    const close = () => {
      form.replaceWith(body);
      tools.hidden = false;
      tools.querySelector("button").focus();
    };
    const cancel = el("button", { type: "button", onclick: close }, "Cancel");
    const told = el("p", { class: "hint" }, "The older text stays in the history; recall uses the new one.");
    const form = el("form", { class: "edit" }, box, told, el("p", { class: "bar" }, el("button", { class: "main" }, "Save"), cancel));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      save(item, note, box, close);
    });
    box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    body.replaceWith(form);
    tools.hidden = true;
    return box.focus();
  }

  async function save(item, note, box, close) {
    const text = box.value;
    if (!text.trim()) return box.focus();
    if (text === note.memory) return close();
    let made;
    try {
      made = await api.get((await api.correct(note.id, text)).id);
    } catch (error) {
      return world.failed(error);
    }
    const fresh = row(made);
    fresh.classList.add("fresh");
    item.replaceWith(fresh);
    fresh.querySelector("button").focus();
    world.worked();
    toast("Corrected. History has the older text.");
    return world.changed();
  }

  async function versions(item, note, button) {
    const open = item.querySelector(".versions");
    button.setAttribute("aria-expanded", String(!open));
    if (open) return open.remove();
    try {
      const { results } = await api.history(note.id);
      const older = results.filter(({ id }) => id !== note.id).reverse();
      const line = (each) => el("li", {}, plain(each.memory), el("p", { class: "meta" }, `until ${moment((each.until ?? "").slice(0, 10))}`));
      older.forEach((each, i) => Object.assign(each, { until: (i ? older[i - 1] : note).created_at }));
      item.append(el("div", { class: "versions" }, el("h3", {}, "Before"), el("ol", {}, ...older.map(line))));
    } catch (error) {
      world.failed(error);
    }
    return undefined;
  }

  // -- adding

  async function add(event) {
    event.preventDefault();
    const text = $("note-text").value;
    const [speaker, session, timestamp] = ["speaker", "session", "when"].map((name) => $(`note-${name}`).value.trim());
    if (!text.trim()) return $("note-text").focus();
    let made;
    try {
      const { results } = await api.add(api.filled({ text, speaker, session, timestamp, ...world.scope() }));
      made = results[0];
    } catch (error) {
      return world.failed(error);
    }
    $("note-text").value = "";
    $("find").value = "";
    $("note-text").focus();
    added = made.id;
    toast("Added. Recall can find it now.");
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
  return { load: () => load(), leave: () => held.send() };
}
