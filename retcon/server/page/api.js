// The server, as functions. Every failure is an Error with one plain line to show.

let key = sessionStorage.getItem("retcon-key") ?? "";

export const currentKey = () => key;

export function useKey(value) {
  key = value.trim();
  if (key) sessionStorage.setItem("retcon-key", key);
  else sessionStorage.removeItem("retcon-key");
}

export class ServerError extends Error {
  constructor(status, code, message) {
    super(plainly(status, code, oneLine(message)));
    Object.assign(this, { status, code });
  }
}

// What a person can make of a refusal; the others are said in the server's own words, which name the numbers.
const PLAIN = {
  401: "This key is not accepted",
  403: "Your key may not do this. Check whose notes you ask for, or use another key.",
  404: "That note is no longer there.",
  409: "Somebody changed this note before you did. Look at it again.",
  429: "Too many requests in a short time. Wait a moment, then try again.",
  502: "The model did not answer. The notes are fine; try again, or choose whole notes.",
  503: "The server is busy. Try again in a moment.",
  504: "That took too long. Nothing was changed.",
};

function plainly(status, code, message) {
  const most = code === "too_much" && /^budget is .* takes ([\d,]+)/.exec(message);
  if (most) return `The budget can be ${most[1]} tokens at most on this server.`;
  if (status === 403 && code !== "scope") return "The server does not answer at this address or to this page.";
  return PLAIN[status] ?? `${message.charAt(0).toUpperCase()}${message.slice(1)}${/[.?!]$/.test(message) ? "" : "."}`;
}

const oneLine = (text) => String(text).replace(/\s+/g, " ").trim().slice(0, 300);

async function call(method, path, { body, signal, keepalive, once } = {}) {
  const headers = { Accept: "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  if (once) headers["Idempotency-Key"] = once;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let reply;
  try {
    const sent = body === undefined ? undefined : JSON.stringify(body);
    reply = await fetch(path, { method, headers, signal, keepalive, body: sent });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (/ISO-8859|header/i.test(error.message)) throw new ServerError(401, "key", "no such key");
    throw new ServerError(0, "unreachable", "The server does not answer. Is retcon serve still running?");
  }
  const text = await reply.text();
  let value = null;
  try { value = text ? JSON.parse(text) : null; } catch { /* told below */ }
  if (reply.ok && (value !== null || !text)) return value;
  const said = value?.error;
  throw new ServerError(reply.status, said?.code ?? "reply", said?.message ?? "The server answered with something else than its answer");
}

const unsure = new Map(); // a write whose answer was lost -> its Idempotency-Key: sent again, it is still done once

async function write(path, body) {
  const name = `${path} ${JSON.stringify(body)}`;
  const once = unsure.get(name) ?? Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join("-");
  unsure.delete(name);
  try {
    return await call("POST", path, { body, once });
  } catch (error) {
    if (error.status === 0 || error.status >= 500) unsure.set(name, once);
    throw error;
  }
}

/** The object without its empty entries. */
export const filled = (plain) =>
  Object.fromEntries(Object.entries(plain).filter(([, value]) => value !== "" && value !== null && value !== undefined));

const address = (path, plain) => `${path}?${new URLSearchParams(filled(plain))}`;

export const decide = (body, signal) => call("POST", "decide", { body, signal });
export const recall = (body, signal) => call("POST", "recall", { body: { ...body, candidates: true }, signal });
export const ask = (body, signal) => call("POST", "ask", { body, signal });
export const search = (body, signal) => call("POST", "search", { body, signal });
export const add = (body) => write("memories", body);
export const list = (query, signal) => call("GET", address("memories", query), { signal });
const note = (id, rest = "") => `memories/${encodeURIComponent(id)}${rest}`;
export const get = (id) => call("GET", note(id));
export const correct = (id, text) => write(note(id, "/supersede"), { text });
export const history = (id) => call("GET", note(id, "/history"));
export const remove = (id, { leaving = false } = {}) => call("DELETE", note(id), { keepalive: leaving });
export const sample = () => call("GET", "page/sample.json");
export const reports = () => call("GET", "page/report.json");
