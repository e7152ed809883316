// The decision in numbers: a bar for each action's predicted utility, and a signed bar for each feature.

import { $, el, keyed, many, number, say, signed } from "./dom.js";

export const RETAIN = "retain";

/** What each action gives, in words; the name of an action that somebody added stands for itself. */
const WAYS = {
  retain: "whole notes",
  extract: "sentences that matter",
  merge: "merged by the model",
  abstract: "summed up by the model",
  rewrite: "rewritten by the model",
  hybrid: "whole and summed up",
};
export const way = (name) => WAYS[name] ?? name;

const digits = (count) => (v) => number(v, count);
const percent = (v) => `${number(100 * v, 0)} %`;
const FEATURES = {
  intercept: ["starting point", () => ""],
  budget: ["budget, as a share of 512", digits(3)],
  notes: ["notes found", digits(0)],
  pressure: ["budgets that all would fill", digits(2)],
  fit: ["share that fits whole", percent],
  sessions: ["conversations", digits(0)],
  inconsistency: ["spread in meaning", digits(3)],
  similarity: ["likeness in meaning", digits(3)],
  single_session: ["asks about one conversation", percent],
  multi_session: ["asks across conversations", percent],
  temporal: ["asks about time", percent],
  knowledge_update: ["asks what changed", percent],
};

/** The best action by score other than retain; the first of equals. */
function challenger(utilities) {
  const others = Object.keys(utilities).filter((name) => name !== RETAIN);
  return others.reduce((best, name) => (best === null || utilities[name] > utilities[best] ? name : best), null);
}

const rules = new Set(); // routers that are a rule: their numbers are no chances

/** Whether the router is a rule, which its reasons say wherever it gives one. */
export function isRule({ router, reason }) {
  if (/by rule, not learned/.test(reason)) rules.add(router);
  return rules.has(router);
}

/** The reason in the words of the page. */
export function plainReason({ reason }) {
  return reason
    .replace(/\b([a-z]+): /g, (all, name) => (name in WAYS ? `${way(name)}: ` : all))
    .replace(/ for retain\b/g, " for whole notes")
    .replace(" (by rule, not learned)", "")
    .replace("asked for by the caller", "you chose it")
    .replace("the only action left", "the only way left")
    .replace(/candidate notes/g, "notes that were found");
}

/** What a rule went by, in words. */
export function toldRule({ features: { fit, notes }, budget, reason }) {
  const here = /\d candidate notes fit/.test(reason) ? "" : ` Here ${Math.round(fit * notes)} of ${notes} fit in ${many(budget, "token")}.`;
  return `The router is a rule: whole notes if all that were found fit, otherwise the sentences that matter.${here}`;
}

export function drawUtilities(decision) {
  const { utilities, threshold } = decision;
  const names = Object.keys(utilities);
  const goal = RETAIN in utilities && names.length > 1 && threshold !== null ? utilities[RETAIN] + threshold : null;
  const values = [...Object.values(utilities), ...(goal === null ? [] : [goal])];
  const low = Math.min(0, ...values);
  const high = Math.max(1, ...values);
  const at = (value) => (100 * (value - low)) / (high - low);
  const table = $("bars");
  table.style.setProperty("--goal", goal === null ? "-1%" : `${at(goal)}%`);
  table.classList.toggle("aimless", goal === null);
  table.dataset.goal = goal === null ? "" : String(goal);
  keyed(table.tBodies[0], names, (name) => name, barRow, (row, name) => {
    const value = utilities[name];
    const chosen = name === decision.action;
    row.classList.toggle("chosen", chosen);
    row.classList.toggle("retain", name === RETAIN);
    row.cells[0].replaceChildren(...title(name, chosen));
    const bar = row.cells[1].firstChild;
    bar.style.left = `${at(Math.min(0, value))}%`;
    bar.style.width = `${at(Math.max(0, value)) - at(Math.min(0, value))}%`;
    say(row.cells[2], number(value, 3));
  });
  say($("advantage"), told(decision, goal));
  drawLadder(decision);
}

const title = (name, chosen) => [
  chosen ? "▸ " : "",
  way(name),
  chosen ? el("span", { class: "sr" }, " (chosen)") : "",
];

const barRow = () =>
  el(
    "tr",
    {},
    el("th", { scope: "row" }),
    el("td", { class: "track" }, el("div", { class: "fill" })),
    el("td", { class: "n" }),
  );

/** Whether the router went by what fits and not by its numbers: all notes fit and are kept, or none does. */
function byFit({ action, advantage, features: { fit, notes }, forced, selected }) {
  const settled = action === RETAIN ? fit >= 1 || !notes : fit <= 0;
  return settled && !forced && selected === null && advantage > 0 !== (action !== RETAIN);
}

function told(decision, goal) {
  const { utilities, action, selected } = decision;
  const best = action === RETAIN || !(action in utilities) ? challenger(utilities) : action;
  if (best === null || !(RETAIN in utilities)) return "";
  const lead = `Difference, ${way(best)} less whole notes: ${signed(utilities[best] - utilities[RETAIN], 3)}. `;
  if (byFit(decision)) return `${lead}What fits has the last word here, whatever is expected.`;
  if (selected !== null) return `${lead}${toldUsual(selected, action)}`;
  if (goal === null) return lead.trim();
  return `${lead}To replace them, it must pass the dashed line at ${number(goal, 3)}.`;
}

/** Of a router that has a usual choice: whether it was taken. */
const toldUsual = (selected, action) =>
  selected === action
    ? "This is the usual choice at this budget: it did best where the router was learned."
    : `The usual choice at this budget is ${way(selected)}.`;

function drawLadder({ order = [], action }) {
  $("ladder").hidden = order.length === 0;
  keyed($("ladder").querySelector("ol"), order, (name) => name, () => el("li"), (item, name) => {
    say(item, way(name));
    if (name === action) item.setAttribute("aria-current", "step");
    else item.removeAttribute("aria-current");
  });
}

const weighed = new Map(); // router -> features that it was seen to give weight: they keep their rows at zero

/** For the chosen action, or the best rival of raw notes: what each feature adds to it beyond what it adds to retain. */
export function drawContributions(decision, contributions) {
  const rival = decision.action === RETAIN ? challenger(decision.utilities) : decision.action;
  const ours = contributions?.[rival];
  $("moved").hidden = !ours;
  $("moved-none").hidden = Boolean(ours);
  if (!ours) {
    const unknown = `The router says nothing of ${way(rival)}: it was not learned with that.`;
    return say($("moved-none"), rival ? unknown : "There is only one way to take.");
  }
  const base = contributions[RETAIN] ?? {};
  const moved = (name) => (ours[name] ?? 0) - (base[name] ?? 0);
  const all = ["intercept", ...Object.keys(decision.features)]
    .map((name) => ({ name, value: decision.features[name], moved: moved(name) }));
  const known = weighed.get(decision.router) ?? new Set(["intercept"]);
  for (const { name } of all) if (moved(name) !== 0) known.add(name);
  weighed.set(decision.router, known);
  say($("moved-head"), RETAIN in contributions ? `${way(RETAIN)} ◂ ▸ ${way(rival)}` : `for ${way(rival)}`);
  return drawWeighed(all.filter(({ name }) => known.has(name)));
}

function drawWeighed(rows) {
  const most = Math.max(1e-9, ...rows.map(({ moved }) => Math.abs(moved)));
  keyed($("moved").tBodies[0], rows, ({ name }) => name, factRow, (row, { name, value, moved }) => {
    say(row.cells[1], shown(name, value));
    const bar = row.cells[2].firstChild;
    bar.style.left = moved < 0 ? `${50 + (50 * moved) / most}%` : "50%";
    bar.style.width = `${(50 * Math.abs(moved)) / most}%`;
    bar.classList.toggle("against", moved < 0);
    say(row.cells[3], signed(moved, 3));
  });
}

const named = (name) => FEATURES[name]?.[0] ?? name;
const shown = (name, value) => (value === undefined ? "" : (FEATURES[name]?.[1] ?? number)(value));

const factRow = ({ name }) =>
  el(
    "tr",
    {},
    el("th", { scope: "row", title: name }, named(name)),
    el("td", { class: "n" }),
    el("td", { class: "signed" }, el("div")),
    el("td", { class: "n" }),
  );
