// Every note that was found for the question, and what became of it.

import { $, el, keyed, say } from "./dom.js";
import { about, passage, plain, usedRuns } from "./text.js";

const STATUS = {
  kept: ["■", "whole in the text"],
  cut: ["◧", "the marked part is in the text"],
  source: ["▣", "read by the model"],
  dropped: ["□", "left out"],
};
const COUNTED = { kept: "whole", cut: "in part", source: "read by the model", dropped: "left out" };

const FEW = 5;

export function drawCandidates(recall) {
  const wholly = (note) => recall.record && note.status === "cut" && note.used === note.memory;
  const notes = (recall.candidates ?? []).map((note) => (wholly(note) ? { ...note, status: "source" } : note));
  const same = ({ id, status, used, reason }) => [id, status, used, reason].join("\n"); // such a row is left as it is
  keyed($("candidates"), notes, same, row, () => {});
  shorten();
  const count = (status) => notes.filter((note) => note.status === status).length;
  const counts = Object.keys(COUNTED).filter(count).map((status) => `${count(status)} ${COUNTED[status]}`);
  say($("counts"), counts.join(", ") || "none was found");
}

/** Of the notes that were left out, five are shown until somebody asks for more. */
function shorten(all = false) {
  const left = [...$("candidates").querySelectorAll(":scope > .dropped")];
  left.forEach((item, i) => { item.hidden = !all && i >= FEW; });
  $("candidates-more").hidden = all || left.length <= FEW;
  say($("candidates-more"), `Show ${left.length - FEW} more that were left out`);
  if (!all) return;
  left[FEW].tabIndex = -1;
  left[FEW].focus();
}

$("candidates-more").addEventListener("click", () => shorten(true));

/** Why it was left out. A score that comes from the notes around it would contradict that it shares no word. */
function because({ reason, score }) {
  const alone = /^shares no word/.test(reason ?? "");
  const told = alone ? "shares no word with the question" : reason;
  return [told, !alone && score > 0 ? `score ${score.toFixed(2)}` : ""];
}

function row(note) {
  const [glyph, word] = STATUS[note.status] ?? ["?", note.status];
  const marked = ({ text }) => el("mark", { class: "used" }, text);
  const [reason, score] = because(note);
  return el(
    "li",
    { class: `note ${note.status}`, "data-id": note.id },
    note.status === "cut" && note.used ? passage(usedRuns(note.memory, note.used), marked) : plain(note.memory),
    el(
      "p",
      { class: "meta" },
      el("b", { class: "status" }, el("span", { "aria-hidden": "true" }, `${glyph} `), word),
      reason && el("span", {}, reason),
      el("span", { class: "about" }, [about(note), score].filter(Boolean).join(" · ")),
    ),
  );
}
