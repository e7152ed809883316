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
  const drafts = new Map(); // id -> a correction that is not saved yet: it outlives its row
  const held = deletes({
    failed: (error, { row: at }) => world.failed(error, { at, of: "form" }),
    sent: () => {
      world.worked();
      world.changed();
    },
  });

  const jobs = newest(async ({ find, cursor, scope, focus }, signal) => {
    if (!cursor) loading();
    const reply = find
      ? await api.search({ query: find, top_k: PAGE, ...scope }, signal)
      : await api.list({ limit: PAGE, order: "newest", cursor, ...scope }, signal);
    next = find ? null : (reply.next ?? null);
    if (!find) total = reply.total;
    const rows = reply.results.map((item) => row(item.note ?? item));
    if (cursor) $("list").append(...rows);
    else $("list").replaceChildren(...rows);
    $("list").removeAttribute("aria-busy");
    for (const item of rows) if (drafts.has(item.dataset.id)) item.edit();
    if (focus) rows[0]?.querySelector("button").focus();
    world.worked();
    counted(find);
  }, (error) => {
    $("list").removeAttribute("aria-busy");
    $("notes-none").hidden = true;
    $("list").replaceChildren(); // they may be somebody else's
    $("more").hidden = true;
    say($("notes-title"), "Notes");
    world.failed(error, { at: $("notes-said"), retry: () => load() });
  });

  const load = (cursor) =>
    jobs.push({ find: $("find").value.trim(), cursor, scope: world.scope(), focus: Boolean(cursor) }, { urgent: !cursor });

  /** What is shown is dimmed; where there is nothing yet, that is said. */
  function loading() {
    $("list").setAttribute("aria-busy", "true");
    if ($("list").children.length) return;
    $("notes-none").replaceChildren(el("p", { class: "hint" }, "Loading …"));
    $("notes-none").hidden = false;
  }

  function counted(find = $("find").value.trim()) {
    const shown = $("list").querySelectorAll(":scope > li:not([hidden])").length;
    const all = total === null ? shown : total - $("list").querySelectorAll(":scope > li[hidden]").length;
    $("more").hidden = !next;
    say($("notes-title"), find ? `${many(shown, "note")} found` : many(all, "note"));
    $("notes-none").hidden = shown > 0;
    if (shown) $("notes-none").replaceChildren();
    else if (find) $("notes-none").replaceChildren(el("p", {}, unfound(find)));
    else $("notes-none").replaceChildren(...world.welcome());
  }

  const unfound = (find) => `${/\s/.test(find) ? "No note has any of the words" : "No note has the word"} “${find}”. Only whole words are found.`;

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
    item.edit = () => edit(item, note, { focus: false });
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
      row: item,
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

  async function edit(item, note, { focus = true } = {}) {
    try {
      if (note.truncated) note = { ...note, ...(await api.get(note.id)), truncated: false };
    } catch (error) {
      return world.failed(error, { at: item, of: "form" });
    }
    const [body, tools] = item.children;
    const box = el("textarea", { rows: "4", dir: "auto", "aria-label": "Corrected text" });
    box.value = drafts.get(note.id) ?? note.memory;
    box.addEventListener("input", () => drafts.set(note.id, box.value));
    const close = () => {
      drafts.delete(note.id);
      world.worked("form");
      form.replaceWith(body);
      tools.hidden = false;
      tools.querySelector("button").focus();
    };
    const cancel = el("button", { type: "button", onclick: close }, "Cancel");
    const told = el("p", { class: "hint" }, "The older text stays in the history; recall uses the new one.");
    const form = el("form", { class: "edit" }, box, told, el("p", { class: "bar" }, el("button", { class: "main" }, "Save"), cancel));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      save(item, note, form, close);
    });
    box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") close();
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    body.replaceWith(form);
    tools.hidden = true;
    return focus && box.focus();
  }

  /** Send a form once, however often its button is pressed meanwhile; undefined if it failed, which is said in the form. */
  async function sending(form, words, send) {
    const button = form.querySelector("button.main");
    if (button.disabled) return undefined;
    const usual = button.textContent;
    button.disabled = true;
    say(button, words);
    world.worked("form");
    try {
      return await send();
    } catch (error) {
      world.failed(error, { at: form, of: "form" });
      return undefined;
    } finally {
      button.disabled = false;
      say(button, usual);
    }
  }

  /** Say that there is nothing to send. */
  function blank(form, box) {
    world.failed(new Error("Write something first."), { at: form, of: "form" });
    box.focus();
  }

  async function save(item, note, form, close) {
    const box = form.querySelector("textarea");
    const text = box.value;
    if (!text.trim()) return blank(form, box);
    if (text === note.memory) {
      close();
      return toast("Nothing was changed.");
    }
    const made = await sending(form, "Saving …", async () => api.get((await api.correct(note.id, text)).id));
    if (!made) return undefined;
    drafts.delete(note.id);
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
      world.worked("form");
      item.append(el("div", { class: "versions" }, el("h3", {}, "Before"), el("ol", {}, ...older.map(line))));
    } catch (error) {
      button.setAttribute("aria-expanded", "false");
      world.failed(error, { at: item, of: "form" });
    }
    return undefined;
  }

  // -- adding

  async function add(event) {
    event.preventDefault();
    const text = $("note-text").value;
    const [speaker, session, timestamp] = ["speaker", "session", "when"].map((name) => $(`note-${name}`).value.trim());
    if (!text.trim()) return blank($("add"), $("note-text"));
    const body = api.filled({ text, speaker, session, timestamp, ...world.scope() });
    const made = await sending($("add"), "Adding …", () => api.add(body));
    if (!made) return undefined;
    if ($("note-text").value === text) $("note-text").value = "";
    $("note-text").focus();
    added = made.results[0].id;
    if ($("find").value.trim()) toast("Added. You look at found notes only.", { label: "Show all", act: all });
    else toast("Added. Recall can find it now.");
    world.changed();
    return load();
  }

  const all = () => {
    $("find").value = "";
    load();
  };

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
