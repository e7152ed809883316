// Long and marked text, as nodes. Offsets from the server count code points; a string here counts UTF-16 units.

import { el, many } from "./dom.js";

const SHOWN = 700; // characters of a text that are shown before "show all"
const AROUND = 140; // characters kept on both sides of a mark in a long text

/** The offset in UTF-16 units for each of these ascending code point offsets. */
export function units(text, points) {
  if (!/[\ud800-\udbff]/.test(text)) return points.map((point) => Math.min(point, text.length));
  const out = [];
  let unit = 0;
  let point = 0;
  for (const wanted of points) {
    while (point < wanted && unit < text.length) {
      unit += text.codePointAt(unit) > 0xffff ? 2 : 1;
      point += 1;
    }
    out.push(unit);
  }
  return out;
}

/** Text as runs {text, mark}: marks are {start, end, ...} in code points; where two overlap the first is shown. */
export function runs(text, marks) {
  const apart = [];
  for (const mark of [...marks].sort((a, b) => a.start - b.start || b.end - a.end)) {
    if (mark.end > mark.start && mark.start >= (apart.at(-1)?.end ?? 0)) apart.push(mark);
  }
  const ends = units(text, apart.flatMap((mark) => [mark.start, mark.end]));
  const out = [];
  let at = 0;
  apart.forEach((mark, i) => {
    const [start, end] = [ends[2 * i], ends[2 * i + 1]];
    if (start > at) out.push({ text: text.slice(at, start), mark: null });
    if (end > start) out.push({ text: text.slice(start, end), mark });
    at = end;
  });
  if (at < text.length) out.push({ text: text.slice(at), mark: null });
  return out;
}

/** The runs of a note of which only `used` was taken: pieces, one a line, in the note's order. */
export function usedRuns(text, used) {
  const out = [];
  let at = 0;
  for (const piece of used.split("\n").filter(Boolean)) {
    const found = text.indexOf(piece, at);
    if (found < 0) continue;
    if (found > at) out.push({ text: text.slice(at, found), mark: null });
    out.push({ text: piece, mark: { kind: "used" } });
    at = found + piece.length;
  }
  if (at < text.length) out.push({ text: text.slice(at), mark: null });
  return out;
}

/** Nodes for the runs; `draw` makes the node of a marked one. Long text is clipped, with a button for all of it. */
export function passage(pieces, draw = (run) => run.text, most = SHOWN) {
  const total = pieces.reduce((sum, run) => sum + run.text.length, 0);
  const nodes = (list) => list.map((run) => (run.mark ? draw(run) : run.text));
  const box = el("div", { class: "passage", dir: "auto" });
  if (total <= most) {
    box.append(...nodes(pieces));
    return box;
  }
  const brief = clipped(pieces, most);
  const button = el("button", { type: "button", class: "link", "aria-expanded": "false" });
  const body = el("div");
  const show = (all) => {
    body.replaceChildren(...nodes(all ? pieces : brief));
    button.textContent = all ? "show less" : `show all ${many(total, "character")}`;
    button.setAttribute("aria-expanded", String(all));
  };
  button.addEventListener("click", () => show(button.getAttribute("aria-expanded") === "false"));
  show(false);
  box.append(body, button);
  return box;
}

function clipped(pieces, most) {
  const marked = pieces.some((run) => run.mark);
  const room = marked ? 2 * AROUND : most;
  return pieces.map((run, i) => {
    if (run.text.length <= room) return run;
    if (!marked || run.mark) return { ...run, text: `${cut(run.text, 0, most)} …` };
    const head = i > 0 ? cut(run.text, 0, AROUND) : "";
    const tail = i < pieces.length - 1 ? cut(run.text, run.text.length - AROUND, run.text.length) : "";
    return { ...run, text: `${head} … ${tail}` };
  });
}

/** A slice that parts no surrogate pair. */
function cut(text, start, end) {
  const half = (at) => /^[\ud800-\udbff][\udc00-\udfff]$/.test(text.slice(Math.max(0, at - 1), at + 1));
  return text.slice(half(start) ? start + 1 : start, half(end) ? end - 1 : end);
}

/** A text without marks. */
export const plain = (text) => passage([{ text, mark: null }]);

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** "2026-05-09T10:00:00" as "9 May 2026, 10:00"; what is no such time as it is. */
export function moment(iso) {
  const found = /^(\d{4})-(\d\d)-(\d\d)(?:T(\d\d:\d\d))?/.exec(iso ?? "");
  if (!found || !MONTHS[found[2] - 1]) return iso ?? "";
  const [, year, month, day, time] = found;
  return `${Number(day)} ${MONTHS[month - 1]} ${year}${time && time !== "00:00" ? `, ${time}` : ""}`;
}

/** Who said it, when and in which conversation, in one line; where no time was given, the day it was added. */
export function about({ speaker, timestamp, session, created_at }) {
  const when = timestamp ? moment(timestamp) : created_at ? `added ${moment(created_at.slice(0, 10))}` : null;
  return [speaker, when, session && `conversation ${session}`].filter(Boolean).join(" · ");
}
