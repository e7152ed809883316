// The Recall view: the decision follows the slider, the text follows the decision.

import * as api from "./api.js";
import { drawContributions, drawUtilities, RETAIN } from "./bars.js";
import { budgetInputs } from "./budget.js";
import { $, el, keyed, many, say } from "./dom.js";
import { newest } from "./newest.js";
import { passage, plain, runs, usedRuns } from "./text.js";

const NO_MODEL = new Set([RETAIN, "extract"]); // every other action is written by a model, and waits until asked
const TYPING = 120; // ms without a key before a query is sent
const WHOLE = 40_000; // characters of packed text that are shown at once: all that the slider can buy
const NAMED = 8; // claims that a record left out and that are named
const PATIENCE = 250; // ms that the text may lag behind a moving slider

const STATUS = {
  kept: ["■", "kept whole"],
  cut: ["◧", "cut: the marked part"],
  dropped: ["□", "dropped"],
  source: ["▣", "read by the model"],
};

const COUNTED = { kept: "kept", cut: "cut", source: "read", dropped: "dropped" };

const asked = { query: "", budget: 256, action: "", exclude: [] };
const last = { actions: [], contributions: null, recall: null, drawn: 0 };

/** Start the view. `world` has scope(), failed(error), worked() and remember(values). */
export function recallView(world, start) {
  Object.assign(asked, start);
  $("query").value = asked.query;
  const jobs = newest((job, signal, outdated) => work(job, signal, outdated, world), (error) => {
    $("result").setAttribute("aria-busy", "false");
    world.failed(error);
  });

  const go = ({ released = true, urgent = false } = {}) => {
    world.remember({ query: asked.query, budget: asked.budget });
    if (!asked.query.trim()) {
      jobs.stop();
      $("result").hidden = true;
      return world.idle();
    }
    return jobs.push({ ...asked, scope: world.scope(), released }, { urgent });
  };
  const fresh = (change, how) => {
    Object.assign(asked, { exclude: [] }, change);
    go(how);
  };

  budgetInputs(asked.budget, (budget, released) => fresh({ budget }, { released }));
  let timer = 0;
  $("query").addEventListener("input", (event) => {
    clearTimeout(timer);
    timer = setTimeout(() => fresh({ query: event.target.value }, { released: false, urgent: true }), TYPING);
  });
  const submit = () => {
    clearTimeout(timer);
    fresh({ query: $("query").value }, { urgent: true });
  };
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  $("query").addEventListener("change", () => $("query").value !== asked.query && submit());
  $("force").addEventListener("change", (event) => fresh({ action: event.target.value }, { urgent: true }));
  $("escalate").addEventListener("click", () => {
    if (!last.recall) return;
    $("force").value = "";
    asked.action = "";
    asked.exclude = last.recall.tried;
    go({ urgent: true });
  });
  return {
    again: () => fresh({}, { urgent: true }),
    ask: (query) => {
      $("query").value = query;
      fresh({ query }, { urgent: true });
      $("query").focus();
    },
    budget: () => asked.budget,
  };
}

async function work(job, signal, outdated, world) {
  $("result").setAttribute("aria-busy", "true");
  const body = { query: job.query, budget: job.budget, ...job.scope };
  const named = job.action || job.exclude.length > 0; // then the router's free choice is not what is taken
  let action = job.action;
  if (!named) {
    const decision = await api.decide(body, signal);
    last.contributions = decision.contributions;
    last.actions = decision.actions ?? Object.keys(decision.utilities);
    drawDecision(decision);
    action = decision.action;
  }
  world.worked();
  if (action && !NO_MODEL.has(action) && !job.released) return waits(action);
  if (outdated() && performance.now() - last.drawn < PATIENCE) return undefined;
  const extra = api.filled({ action: job.action });
  if (job.exclude.length) extra.exclude = job.exclude;
  if (action && !NO_MODEL.has(action)) say($("of"), `of ${job.budget}: ${action} is being written …`);
  const recall = await api.recall({ ...body, ...extra }, signal);
  last.drawn = performance.now();
  last.recall = recall;
  if (named) drawDecision(recall.decision);
  drawRecall(recall);
  $("result").setAttribute("aria-busy", "false");
  if (!outdated()) announce(recall);
  return undefined;
}

function waits(action) {
  $("result").setAttribute("aria-busy", "false");
  $("packed").classList.add("stale");
  say($("of"), `${action} needs the model: let go of the slider, or press Enter, to have it written`);
}

let announced = 0;
function announce(recall) {
  clearTimeout(announced);
  const words = `${recall.action}, ${recall.tokens} of ${recall.budget} tokens. ${recall.decision.reason}`;
  announced = setTimeout(() => say($("said"), words), 600);
}

function drawDecision(decision) {
  $("result").hidden = false;
  $("result").dataset.budget = String(decision.budget);
  say($("action"), decision.action);
  say($("reason"), sentence(decision.reason.replace(`${decision.action}: `, ""))); // the heading says the action
  const flags = [
    decision.forced && "asked for",
    decision.certified && "certified",
    decision.extrapolated && "beyond learned budgets",
  ].filter(Boolean);
  keyed($("flags"), [...flags, decision.router], (flag) => flag, (flag) => el("span", {}, flag), () => {});
  drawUtilities(decision);
  drawContributions(decision, last.contributions);
  drawWarnings(decision.warnings ?? []);
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

function drawWarnings(warnings) {
  $("warnings").hidden = warnings.length === 0;
  keyed($("warnings"), warnings, (line) => line, (line) => el("li", {}, line), () => {});
}

function drawRecall(recall) {
  say($("action"), recall.action);
  drawWarnings(recall.warnings ?? []);
  drawMeter(recall);
  drawActions(recall);
  drawText(recall);
  drawCandidates(recall);
}

function drawMeter({ tokens, budget, usage }) {
  const share = budget > 0 ? Math.min(100, (100 * tokens) / budget) : 0;
  $("meter").firstElementChild.style.width = `${share}%`;
  $("meter").setAttribute("aria-valuenow", String(tokens));
  $("meter").setAttribute("aria-valuemax", String(budget));
  $("meter").setAttribute("aria-valuetext", `${tokens} of ${budget} tokens`);
  say($("tokens"), tokens.toLocaleString("en"));
  const calls = usage?.model_calls ? `, ${many(usage.model_calls, "model call")}` : "";
  say($("of"), `of ${many(budget, "token")}${calls}`);
}

function drawActions(recall) {
  const names = last.actions.length ? last.actions : Object.keys(recall.decision.utilities);
  const select = $("force");
  const option = (name) => el("option", { value: name }, name || "router’s choice");
  keyed(select, ["", ...names], (name) => name, option, () => {});
  select.value = asked.action;
  const left = names.filter((name) => !recall.tried.includes(name));
  $("escalate").disabled = left.length === 0 || !recall.text;
  $("escalate").title = left.length ? "No answer in it? Take the next best action" : "Every action was tried";
  $("tried").hidden = recall.tried.length < 2;
  say($("tried"), `Tried: ${recall.tried.join(" → ")}${left.length ? "" : ". That was every action."}`);
}

function drawText(recall) {
  const box = $("packed");
  box.classList.remove("stale");
  if (!recall.text) {
    const why = recall.budget ? "Nothing fits, or nothing was found." : "A budget of 0 buys no text.";
    box.replaceChildren(el("p", { class: "hint" }, why));
  } else {
    box.replaceChildren(passage(runs(recall.text, doubts(recall.fidelity)), doubtful, WHOLE));
  }
  drawFidelity(recall.fidelity);
}

/** The claims of generated text that its sources do not bear out, as marks. */
function doubts(fidelity) {
  if (!fidelity) return [];
  const mark = ({ start, end }, kind, label) => ({ start, end, kind, label });
  return [
    ...fidelity.mutated.map(({ record, source }) => mark(record, "mutated", `source: ${source.text}`)),
    ...fidelity.unsupported.map((claim) => mark(claim, "unsupported", `no source for this ${claim.kind}`)),
  ];
}

const doubtful = ({ text, mark }) => el("mark", { class: mark.kind }, text, el("small", {}, mark.label));

function drawFidelity(fidelity) {
  const box = $("fidelity");
  box.hidden = !fidelity;
  if (!fidelity) return box.replaceChildren();
  const wrong = fidelity.unsupported.length + fidelity.mutated.length;
  const checked = el("p", {}, `${many(fidelity.supported, "claim")} borne out by the notes, ${wrong} not.`);
  const left = fidelity.missing.slice(0, NAMED).map((claim) => claim.text).join(", ");
  const more = fidelity.missing.length > NAMED ? ` and ${fidelity.missing.length - NAMED} more` : "";
  const missing = left && el("p", { class: "hint" }, `Left out: ${left}${more}`);
  return box.replaceChildren(...[checked, missing].filter(Boolean));
}

function drawCandidates(recall) {
  const wholly = (note) => recall.record && note.status === "cut" && note.used === note.memory;
  const notes = (recall.candidates ?? []).map((note) => (wholly(note) ? { ...note, status: "source" } : note));
  const same = ({ id, status, used, reason }) => [id, status, used, reason].join("\n"); // such a row is left as it is
  keyed($("candidates"), notes, same, candidateRow, () => {});
  const count = (status) => notes.filter((note) => note.status === status).length;
  const counts = Object.keys(COUNTED).filter(count).map((status) => `${count(status)} ${COUNTED[status]}`);
  say($("counts"), counts.join(", ") || "no note was found");
}

function candidateRow(note) {
  const [glyph, word] = STATUS[note.status] ?? ["?", note.status];
  const marked = ({ text }) => el("mark", { class: "used" }, text);
  return el(
    "li",
    { class: `note ${note.status}`, "data-id": note.id },
    el(
      "p",
      { class: "meta" },
      el("b", { class: "status" }, el("span", { "aria-hidden": "true" }, `${glyph} `), word),
      note.reason && el("span", {}, note.reason),
      el("span", { class: "about" }, about(note)),
    ),
    note.status === "cut" && note.used ? passage(usedRuns(note.memory, note.used), marked) : plain(note.memory),
  );
}

/** Who said it, when and where, in one line. */
export function about({ speaker, timestamp, session, score }) {
  const when = timestamp ? timestamp.replace("T", " ").replace(/:00(?:\.0+)?(?=$|[+Z-])/, "") : null;
  return [speaker, when, session, Number.isFinite(score) ? `score ${score.toFixed(2)}` : null].filter(Boolean).join(" · ");
}

