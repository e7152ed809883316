// Deletes that can be taken back: each is held for some seconds before it is sent. Leaving the page, or the view, sends
// what is held (another app or tab in front of it does not), so a note that a person deleted is never still there later.

import * as api from "./api.js";
import { many } from "./dom.js";
import { hide, toast } from "./toast.js";

const HOLD = 8000; // ms

/** `failed(error, held)` is told of a note that could not be deleted, `sent()` when some were. */
export function deletes({ failed, sent }) {
  let held = []; // {id, text, row, restore()}

  function hold(item) {
    held.push(item);
    const brief = item.text.replace(/\s+/g, " ").slice(0, 40);
    const message = held.length > 1 ? `${many(held.length, "note")} deleted.` : `Deleted “${brief}${item.text.length > 40 ? "…" : ""}”`;
    toast(message, { label: "Undo", act: undo, done: send, ms: HOLD });
  }

  function undo() {
    const back = held;
    held = [];
    for (const item of back.reverse()) item.restore();
  }

  async function send({ leaving = false } = {}) {
    if (!held.length) return;
    const now = held;
    held = [];
    hide();
    await Promise.all(now.map((item) => api.remove(item.id, { leaving }).catch((error) => {
      if (error.status === 404) return; // somebody was quicker
      item.restore();
      failed(error, item);
    })));
    sent();
  }

  addEventListener("pagehide", () => send({ leaving: true }));
  return { hold, send, has: (id) => held.some((item) => item.id === id) };
}
