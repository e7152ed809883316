// The budget: a slider whose steps are even in log tokens, and a number beside it. Either moves the other.

import { $, el, say } from "./dom.js";

const LOW = 4; // 2^4 = 16 tokens
const HIGH = 12; // 2^12 = 4,096
const PER_OCTAVE = 16;

const steps = [
  ...new Set(Array.from({ length: (HIGH - LOW) * PER_OCTAVE + 1 }, (_, i) => Math.round(2 ** (LOW + i / PER_OCTAVE)))),
];

/** The place of the step that is nearest in log tokens. */
function nearest(budget) {
  const far = steps.map((step) => Math.abs(Math.log2(step / Math.max(budget, 1))));
  return far.indexOf(Math.min(...far));
}

/** Wire both inputs; `moved(budget, released)` is called while dragging and when let go. Returns what shows a budget. */
export function budgetInputs(start, moved) {
  const [slider, box] = [$("slider"), $("budget")];
  slider.max = String(steps.length - 1);
  for (let power = LOW; power <= HIGH; power += 1) {
    const tick = el("span", {}, (2 ** power).toLocaleString("en"));
    tick.style.left = `${(100 * steps.indexOf(2 ** power)) / (steps.length - 1)}%`;
    $("ticks").append(tick);
  }
  const wrong = (words) => {
    say($("budget-said"), words);
    box.setAttribute("aria-invalid", String(Boolean(words)));
  };
  const show = (budget) => {
    wrong("");
    slider.value = String(nearest(budget));
    slider.setAttribute("aria-valuetext", `${budget} tokens`);
    slider.style.setProperty("--at", `${(100 * slider.value) / (steps.length - 1)}%`);
    if (box.value !== String(budget)) box.value = String(budget);
  };
  slider.addEventListener("input", () => {
    const budget = steps[Number(slider.value)];
    show(budget);
    moved(budget, false);
  });
  slider.addEventListener("change", () => moved(steps[Number(slider.value)], true));
  const typed = (released) => {
    const text = box.value.trim().replace(/(?<=\d),(?=\d{3})/g, "");
    const budget = Number(text);
    if (!text && !released) return undefined;
    if (!/^\d+$/.test(text) || !Number.isSafeInteger(budget)) return wrong("The budget is a whole number of tokens, 0 or more.");
    show(budget);
    return moved(budget, released);
  };
  box.addEventListener("input", () => typed(false));
  box.addEventListener("change", () => typed(true));
  show(start);
  return show;
}
