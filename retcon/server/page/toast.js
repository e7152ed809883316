// The bar at the bottom: what was just done, and for some things a way back.

import { $, say } from "./dom.js";

const SHOWN = 4000; // ms
let timer = 0;
let state = null; // {message, label, act, done, ms}

/** Say it for a while. With `act`, a button named `label`; `done` is called when the time is over without it. */
export function toast(message, { label = "", act = null, done = null, ms = SHOWN } = {}) {
  state = { message, label, act, done, ms };
  $("toast").hidden = false;
  say($("toast-said"), message);
  $("toast-act").hidden = !act;
  say($("toast-act"), label);
  wait();
}

export function hide() {
  clearTimeout(timer);
  state = null;
  $("toast").hidden = true;
}

function wait() {
  clearTimeout(timer);
  if (state) timer = setTimeout(over, state.ms);
}

function over() {
  const { done } = state;
  hide();
  done?.();
}

// Nobody is hurried who is at the bar.
for (const event of ["mouseenter", "focusin"]) $("toast").addEventListener(event, () => clearTimeout(timer));
for (const event of ["mouseleave", "focusout"]) $("toast").addEventListener(event, wait);
$("toast-act").addEventListener("click", () => {
  const { act } = state;
  hide();
  act();
});
