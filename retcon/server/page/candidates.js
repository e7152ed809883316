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

export function drawCandidates(recall) {
  const wholly = (note) => recall.record && note.status === "cut" && note.used === note.memory;
  const notes = (recall.candidates ?? []).map((note) => (wholly(note) ? { ...note, status: "source" } : note));
  const same = ({ id, status, used, reason }) => [id, status, used, reason].join("\n"); // such a row is left as it is
  keyed($("candidates"), notes, same, row, () => {});
  const count = (status) => notes.filter((note) => note.status === status).length;
  const counts = Object.keys(COUNTED).filter(count).map((status) => `${count(status)} ${COUNTED[status]}`);
  say($("counts"), counts.join(", ") || "none was found");
}

function row(note) {
  const [glyph, word] = STATUS[note.status] ?? ["?", note.status];
  const marked = ({ text }) => el("mark", { class: "used" }, text);
  const score = Number.isFinite(note.score) ? `score ${note.score.toFixed(2)}` : "";
  return el(
    "li",
    { class: `note ${note.status}`, "data-id": note.id },
    note.status === "cut" && note.used ? passage(usedRuns(note.memory, note.used), marked) : plain(note.memory),
    el(
      "p",
      { class: "meta" },
      el("b", { class: "status" }, el("span", { "aria-hidden": "true" }, `${glyph} `), word),
      note.reason && el("span", {}, note.reason),
      el("span", { class: "about" }, [about(note), score].filter(Boolean).join(" · ")),
    ),
  );
}
