// The Report view: what `retcon report` found in short, the crossovers as a chart, and the way to the whole report.

import * as api from "./api.js";
import { $, el, say } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDE = 480; // px from which labels stand beside their lines and not above

export async function showReports(budget, failed, worked) {
  let found;
  try {
    found = (await api.reports()).reports;
    worked();
  } catch (error) {
    if (error.status !== 403) return failed(error);
    return failed(new Error("Reports are for whoever runs this server: they need an admin key."));
  }
  $("report-none").hidden = found.length > 0;
  $("report-some").hidden = found.length === 0;
  if (!found.length) return undefined;
  const choice = $("report-choice");
  const kept = Math.min(Number(choice.value) || 0, found.length - 1);
  choice.replaceChildren(...found.map(({ name }, i) => el("option", { value: i }, name)));
  choice.value = String(kept);
  $("report-which").hidden = found.length < 2;
  const show = () => open(found[Number(choice.value)], budget);
  choice.onchange = show;
  return show();
}

function open({ url, name, title, findings = [], crossovers }, budget) {
  $("report-open").href = new URL(url, document.baseURI).href;
  say($("report-title"), title || name);
  $("report-findings").replaceChildren(...findings.map(finding));
  $("crossover").hidden = crossovers.length === 0;
  $("crossover-chart").replaceChildren(...groups(crossovers).map(([group, rows]) => chart(group, rows, budget)));
}

function finding({ question, answers }) {
  const told = answers.flatMap(({ study, verdict }) => [el("dt", {}, study), el("dd", {}, verdict)]);
  return el("section", {}, el("h3", {}, question), el("dl", {}, ...told));
}

function groups(rows) {
  const found = new Map();
  for (const row of rows) found.set(row.group, [...(found.get(row.group) ?? []), row]);
  return [...found];
}

/** Where a value lies on the axis: a number, or one of the ends where the words say above or below. */
function ends({ text, mean, low, high }) {
  const words = text.match(/^(.*?)(?: \[(.*), (.*)\])?$/);
  return [mean, low, high].map((value, i) => {
    if (Number.isFinite(value)) return value;
    return /above/.test(words?.[i + 1] ?? "") ? Infinity : /below/.test(words?.[i + 1] ?? "") ? 0 : null;
  });
}

function chart(group, rows, budget) {
  const width = Math.max(280, $("report").clientWidth); // drawn at its real size: labels are body text
  const beside = width >= WIDE;
  const [left, right, row_height] = beside ? [180, 24, 32] : [16, 24, 54];
  const height = row_height * rows.length + 30;
  const seen = rows.flatMap(ends).filter((value) => value > 0 && Number.isFinite(value));
  const low = 2 ** Math.floor(Math.log2(Math.min(...seen, 32)) - 0.01);
  const high = 2 ** Math.ceil(Math.log2(Math.max(...seen, 256)) + 0.01);
  const share = (value) => Math.log2(Math.min(Math.max(value, low), high) / low) / Math.log2(high / low);
  const x = (value) => left + (width - left - right) * share(value);
  const upright = (value, look) => node("line", { x1: x(value), x2: x(value), y1: 0, y2: height - 24, class: look });
  const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Crossovers, ${group}` });
  for (let tick = low; tick <= high; tick *= 2) {
    svg.append(upright(tick, "grid"), label(x(tick), height - 6, String(tick), "middle"));
  }
  if (budget >= low && budget <= high) svg.append(upright(budget, "now"));
  rows.forEach((row, i) => {
    const y = row_height * (i + 1) - 16;
    const [mean, from, to] = ends(row);
    svg.append(beside ? label(left - 12, y + 5, row.action, "end") : label(0, y - 14, row.action, "start"));
    if (from !== null && to !== null) {
      svg.append(node("line", { x1: x(from), x2: x(to), y1: y, y2: y, class: "interval" }));
    }
    if (to === Infinity) svg.append(node("path", { d: `M${x(high)} ${y}l-6 -4v8z`, class: "dot" }));
    if (from === 0) svg.append(node("path", { d: `M${x(low)} ${y}l6 -4v8z`, class: "dot" }));
    if (mean > 0 && Number.isFinite(mean)) svg.append(node("circle", { cx: x(mean), cy: y, r: 5, class: "dot" }));
  });
  const lines = rows.map(({ action, text }) => el("li", {}, `${action}: ${text}`));
  const told = el("details", {}, el("summary", {}, "As text"), el("ul", {}, ...lines));
  return el("div", { class: "chart" }, el("h4", {}, group), svg, told);
}

function node(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function label(x, y, text, anchor) {
  const made = node("text", { x, y, "text-anchor": anchor });
  made.textContent = text;
  return made;
}
