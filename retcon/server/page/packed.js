// The recalled text, a line for each note. A line whose note was shortened says by how much, and opens to show the rest.

import { $, el, many, say } from "./dom.js";
import { passage, runs, usedRuns } from "./text.js";

const WHOLE = 40_000; // characters that are shown at once: all that the slider can buy
const NAMED = 8; // claims that a record left out and that are named
const DATE = /^(\d{4}-\d\d-\d\d )/;
const GAP = /…|\.\.\./; // where words were left out

export function drawPacked(recall) {
  const box = $("packed");
  const found = recall.found ?? true;
  $("found").hidden = found;
  say($("found"), `Nothing in memory is about this.${recall.text ? " The newest notes instead:" : ""}`);
  box.classList.remove("stale");
  box.classList.toggle("filler", !found);
  box.classList.toggle("written", Boolean(recall.record));
  box.replaceChildren(recall.text ? written(recall) : el("p", { class: "hint" }, "(no text)"));
  drawFidelity(recall.fidelity);
}

function written(recall) {
  const pieces = runs(recall.text, doubts(recall.fidelity));
  if (recall.text.length > WHOLE) return passage(pieces, doubtful, WHOLE);
  const cuts = recall.record ? new Map() : match(recall.text.split("\n"), recall.candidates ?? []);
  const out = el("div", { class: "passage lines", dir: "auto" });
  split(pieces).forEach((line, i) => out.append(i ? "\n" : "", ...drawLine(line, cuts.get(i))));
  return out;
}

/** Runs as lists of runs, one for each line. */
function split(pieces) {
  const lines = [[]];
  for (const { text, mark } of pieces) {
    text.split("\n").forEach((part, i) => {
      if (i) lines.push([]);
      if (part) lines.at(-1).push({ text: part, mark });
    });
  }
  return lines;
}

function drawLine(line, note) {
  const nodes = line.map((run) => (run.mark ? doubtful(run) : run.text));
  const date = typeof nodes[0] === "string" && nodes[0].match(DATE);
  if (date) nodes.splice(0, 1, el("span", { class: "date" }, date[1]), nodes[0].slice(date[1].length));
  const shown = el("div", { class: "line", dir: "auto" }, ...(note ? nodes.flatMap(gaps) : nodes));
  return note ? [shown, rest(note)] : [shown];
}

/** The places where words were left out, marked. */
function gaps(node) {
  if (typeof node !== "string") return [node];
  return node.split(new RegExp(`(${GAP.source})`)).map((part) => (GAP.test(part) ? el("mark", { class: "gap" }, part) : part));
}

/** How much of the note is not in the text, as a button that shows it. */
function rest(note) {
  const words = (text) => text.split(/\s+/).filter(Boolean).length;
  const left = Math.max(1, words(note.memory) - words(note.used));
  const button = el("button", { type: "button", class: "link cut", "aria-expanded": "false" }, `${many(left, "word")} left out`);
  const whole = el("div", { class: "whole", hidden: true });
  button.addEventListener("click", () => {
    whole.hidden = !whole.hidden;
    button.setAttribute("aria-expanded", String(!whole.hidden));
    if (!whole.hidden) whole.replaceChildren(passage(usedRuns(note.memory, note.used), ({ text }) => el("mark", { class: "used" }, text)));
  });
  return el("div", { class: "rest" }, button, whole);
}

/** Line number -> the shortened note that it is made of: the first line, not taken yet, that holds the note's first piece. */
function match(lines, candidates) {
  const found = new Map();
  for (const note of candidates.filter(({ status, used }) => status === "cut" && used)) {
    const piece = note.used.split(/\n|…|\.\.\./).map((part) => part.trim()).find(Boolean);
    const place = piece ? lines.findIndex((line, i) => !found.has(i) && line.includes(piece)) : -1;
    if (place >= 0) found.set(place, note);
  }
  return found;
}

/** The claims of generated text that its sources do not bear out, as marks. */
function doubts(fidelity) {
  if (!fidelity) return [];
  const mark = ({ start, end }, kind, label) => ({ start, end, kind, label });
  return [
    ...fidelity.mutated.map(({ record, source }) => mark(record, "mutated", `the note says: ${source.text}`)),
    ...fidelity.unsupported.map((claim) => mark(claim, "unsupported", `no note has this ${claim.kind}`)),
  ];
}

const doubtful = ({ text, mark }) => el("mark", { class: mark.kind }, text, el("small", {}, mark.label));

function drawFidelity(fidelity) {
  const box = $("fidelity");
  box.hidden = !fidelity;
  if (!fidelity) return box.replaceChildren();
  const wrong = fidelity.unsupported.length + fidelity.mutated.length;
  const checked = el("p", {}, `Written by the model. ${many(fidelity.supported, "claim")} borne out by the notes, ${wrong} not.`);
  const left = fidelity.missing.slice(0, NAMED).map((claim) => claim.text).join(", ");
  const more = fidelity.missing.length > NAMED ? ` and ${fidelity.missing.length - NAMED} more` : "";
  const missing = left && el("p", { class: "hint" }, `It left out: ${left}${more}`);
  return box.replaceChildren(...[checked, missing].filter(Boolean));
}
