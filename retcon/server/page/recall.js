// The Recall view: the text first, a sentence of why below it, and what led to it folded away.

import { answerButton } from "./answer.js";
import * as api from "./api.js";
import { drawContributions, drawUtilities, isRule, plainReason, RETAIN, toldRule, way } from "./bars.js";
import { budgetInputs } from "./budget.js";
import { drawCandidates } from "./candidates.js";
import { $, el, keyed, many, say } from "./dom.js";
import { newest } from "./newest.js";
import { drawPacked } from "./packed.js";
import { toast } from "./toast.js";

const NO_MODEL = new Set([RETAIN, "extract"]); // every other action is written by a model, and waits until asked
const TYPING = 120; // ms without a key before a query is sent
const PATIENCE = 250; // ms that the text may lag behind a moving slider
const SLOW = 300; // ms after which it is said that an answer is waited for

const asked = { query: "", budget: 256, action: "", exclude: [] };
const last = { actions: [], contributions: null, recall: null, drawn: 0 };

/** Start the view. `world` has scope(), failed(error), worked(), idle() and keep(how). */
export function recallView(world) {
  const jobs = newest((job, signal, outdated) => work(job, signal, outdated, world), (error) => {
    busy(false);
    broken = true;
    $("result").hidden = true; // an old answer does not stand under a new question
    world.failed(error, { at: $("ask"), retry: () => go({ urgent: true }) });
  });
  let broken = false;
  const forget = answerButton(() => ({ query: asked.query, budget: asked.budget, ...world.scope() }), world.failed);

  const go = ({ released = true, urgent = false } = {}) => {
    broken = false;
    forget();
    if (!asked.query.trim()) {
      jobs.stop();
      busy(false);
      $("result").hidden = true;
      return world.idle();
    }
    return jobs.push({ ...asked, scope: world.scope(), released }, { urgent });
  };
  const fresh = (change, how = {}) => {
    Object.assign(asked, { exclude: [] }, change);
    world.keep({ push: how.step });
    go(how);
  };

  let before = null; // the address before the slider or the keys moved: one step back leads there
  const moved = (change, { released, urgent = false }) => {
    before ??= { query: asked.query, budget: asked.budget };
    if (!released) return fresh(change, { released, urgent });
    const now = { query: asked.query, budget: asked.budget, ...change };
    if (before.query !== now.query || before.budget !== now.budget) {
      Object.assign(asked, before);
      world.keep();
    }
    before = null;
    return fresh(now, { released, urgent, step: true });
  };

  const grow = () => { // a long question wraps
    $("query").style.height = "auto";
    if ($("query").scrollHeight) $("query").style.height = `${$("query").scrollHeight + 2}px`;
  };
  const showBudget = budgetInputs(asked.budget, (budget, released) => moved({ budget }, { released }));
  let timer = 0;
  $("query").addEventListener("input", (event) => {
    grow();
    clearTimeout(timer);
    timer = setTimeout(() => moved({ query: event.target.value }, { released: false, urgent: true }), TYPING);
  });
  const submit = () => {
    clearTimeout(timer);
    if ($("budget").getAttribute("aria-invalid") === "true") return $("budget").focus();
    return moved({ query: $("query").value }, { released: true, urgent: true });
  };
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  $("query").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    $("ask").requestSubmit();
  });
  addEventListener("resize", grow);
  $("query").addEventListener("change", () => $("query").value !== asked.query && submit());
  $("force").addEventListener("change", (event) => fresh({ action: event.target.value }, { urgent: true }));
  $("escalate").addEventListener("click", () => {
    if (!last.recall) return;
    $("force").value = "";
    asked.action = "";
    asked.exclude = last.recall.tried;
    go({ urgent: true });
  });
  $("copy").hidden = !navigator.clipboard;
  $("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(last.recall.text);
      toast("Copied.");
    } catch {
      toast("The browser does not allow it. Select the text and copy it by hand.");
    }
  });
  const set = ({ query, budget }) => {
    clearTimeout(timer);
    before = null;
    $("query").value = query;
    grow();
    showBudget(budget);
    Object.assign(asked, { query, budget, exclude: [] });
    go({ urgent: true });
  };
  return {
    set,
    again: () => {
      asked.exclude = [];
      go({ urgent: true });
    },
    ask: (query) => {
      $("query").value = query;
      grow();
      submit();
      $("query").focus();
    },
    shown: () => {
      grow();
      if (broken) go({ urgent: true });
    },
    asked: () => ({ query: asked.query, budget: asked.budget }),
  };
}

let waited = 0;

/** Whether an answer is waited for: the old one is dimmed meanwhile, and after a moment the page says so. */
function busy(now) {
  clearTimeout(waited);
  $("result").setAttribute("aria-busy", String(now));
  if (now) waited = setTimeout(() => { $("asking").hidden = false; }, SLOW);
  else $("asking").hidden = true;
}

async function work(job, signal, outdated, world) {
  busy(true);
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
  if (!named && none()) return world.idle();
  if (action && !NO_MODEL.has(action) && !job.released) return waits(action);
  if (outdated() && performance.now() - last.drawn < PATIENCE) return undefined;
  const extra = api.filled({ action: job.action });
  if (job.exclude.length) extra.exclude = job.exclude;
  if (action && !NO_MODEL.has(action)) say($("of"), "The model is writing …");
  const recall = await api.recall({ ...body, ...extra }, signal);
  last.drawn = performance.now();
  last.recall = recall;
  if (named) drawDecision(recall.decision);
  drawRecall(recall);
  busy(false);
  if (none()) return world.idle();
  if (!outdated()) announce(recall);
  return undefined;
}

/** Whether the decision had no notes to choose from. */
function none() {
  if ($("result").hidden) busy(false);
  return $("result").hidden;
}

function waits(action) {
  busy(false);
  $("packed").classList.add("stale");
  say($("of"), `Let go of the slider, or press Enter, and the model writes it: ${way(action)}`);
}

let announced = 0;
function announce(recall) {
  clearTimeout(announced);
  const words = `${recall.why} ${recall.tokens} of ${recall.budget} tokens.`;
  announced = setTimeout(() => say($("said"), words), 600);
}

function drawDecision(decision) {
  $("result").hidden = !decision.features.notes;
  $("result").dataset.budget = String(decision.budget);
  $("result").dataset.action = decision.action;
  say($("decided"), `${way(decision.action)} (${decision.action})`);
  const reason = plainReason(decision);
  const rule = isRule(decision);
  say($("reason"), `${reason.charAt(0).toUpperCase()}${reason.slice(1)}.`);
  $("rule").hidden = !rule;
  say($("rule"), rule ? toldRule(decision) : "");
  $("numbers").hidden = rule;
  const flags = [
    decision.forced && "you chose it",
    decision.extrapolated && "beyond learned budgets",
    `router ${decision.router}`,
  ].filter(Boolean);
  keyed($("flags"), flags, (flag) => flag, (flag) => el("span", {}, flag), () => {});
  drawUtilities(decision);
  drawContributions(decision, last.contributions);
  drawWarnings(decision.warnings ?? []);
}

function drawWarnings(given) {
  const warnings = given.filter((line) => !/^nothing in memory is about this/i.test(line)); // said above the text
  $("warnings").hidden = warnings.length === 0;
  keyed($("warnings"), warnings, (line) => line, (line) => el("li", {}, line), () => {});
}

function drawRecall(recall) {
  $("result").dataset.action = recall.action;
  say($("why"), recall.why ?? "");
  $("why").hidden = recall.found === false && recall.candidates?.length > 0 && recall.budget > 0; // said above the text
  drawWarnings(recall.warnings ?? []);
  drawMeter(recall);
  drawActions(recall);
  drawPacked(recall);
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
  const option = (name) => el("option", { value: name }, name ? way(name) : "whatever the router chooses");
  keyed(select, ["", ...names], (name) => name, option, () => {});
  select.value = asked.action;
  $("reader").hidden = !recall.text || names.every((name) => NO_MODEL.has(name)); // nobody to read it
  const left = names.filter((name) => !recall.tried.includes(name));
  const most = left.length === 0 || !recall.text;
  $("escalate").disabled = most;
  $("next").hidden = most && recall.tried.length < 2;
  $("copy").disabled = !recall.text;
  const tried = `Tried: ${recall.tried.map(way).join(", then ")}.`;
  const hint = "No answer in it? There is another way to make the text.";
  say($("tried"), recall.tried.length < 2 ? hint : `${tried}${left.length ? "" : " That was every way."}`);
}
