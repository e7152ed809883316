// What is looked at, in the address: "#recall?q=my+cat&budget=64&user=ann". It stands behind the #, so the browser sends
// it to no server: a question may be private, and a log is not the place for it.

export const VIEWS = ["recall", "notes", "report"];
export const BUDGET = 256;
const NAMES = { query: "q", user_id: "user", agent_id: "agent", run_id: "run" };

/** The values in the present address, each with a default. */
export function read() {
  const [view, rest = ""] = location.hash.slice(1).split(/\?(.*)/s);
  const given = new URLSearchParams(rest);
  const budget = /^\d{1,7}$/.test(given.get("budget") ?? "") ? Number(given.get("budget")) : BUDGET;
  const words = Object.fromEntries(Object.entries(NAMES).map(([name, short]) => [name, given.get(short) ?? ""]));
  return { view: VIEWS.includes(view) ? view : "recall", budget, ...words };
}

/** Put the values into the address; `push` makes a step that the back button returns from. */
export function write({ view, budget, ...words }, { push = false } = {}) {
  const found = Object.entries(NAMES).filter(([name]) => words[name]).map(([name, short]) => [short, words[name]]);
  if (words.query || budget !== BUDGET) found.splice(words.query ? 1 : 0, 0, ["budget", String(budget)]);
  const rest = new URLSearchParams(found).toString();
  const hash = `#${view}${rest && `?${rest}`}`;
  if (hash === (location.hash || "#recall")) return;
  if (push) history.pushState(null, "", hash);
  else history.replaceState(null, "", hash);
}
