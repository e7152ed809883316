// Work for the newest job only. One job is in flight; of those that come meanwhile the last one waits, the others are
// forgotten. So a moving slider draws as often as the server can answer, and never more than once a frame.

const FRAME = 16; // ms

export function newest(work, failed) {
  let waiting = null;
  let running = null;

  async function drain() {
    while (waiting) {
      const job = waiting;
      waiting = null;
      running = new AbortController();
      const started = performance.now();
      try {
        await work(job, running.signal, () => waiting !== null);
      } catch (error) {
        if (error.name !== "AbortError" && !waiting) failed(error);
      }
      const rest = FRAME - (performance.now() - started);
      if (rest > 0) await new Promise((done) => setTimeout(done, rest));
    }
    running = null;
  }

  return {
    /** Take this job next; an urgent one does not wait for the one in flight. */
    push(job, { urgent = false } = {}) {
      waiting = job;
      if (!running) drain();
      else if (urgent) running.abort();
    },
    stop() {
      waiting = null;
      running?.abort();
    },
  };
}
