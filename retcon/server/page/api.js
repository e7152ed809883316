// The server, as functions. Every failure is an Error with one line to show.

let key = sessionStorage.getItem("retcon-key") ?? "";

export const currentKey = () => key;

export function useKey(value) {
  key = value.trim();
  if (key) sessionStorage.setItem("retcon-key", key);
  else sessionStorage.removeItem("retcon-key");
}

export class ServerError extends Error {
  constructor(status, code, message) {
    super(oneLine(message));
    Object.assign(this, { status, code });
  }
}

export const oneLine = (text) => String(text).replace(/\s+/g, " ").trim().slice(0, 300);

async function call(method, path, { body, signal } = {}) {
  const headers = { Accept: "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let reply;
  try {
    reply = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (/ISO-8859|header/i.test(error.message)) throw new ServerError(0, "key", "The key holds what no key can hold");
    throw new ServerError(0, "unreachable", "The server does not answer: is retcon serve still running?");
  }
  const text = await reply.text();
  let value = null;
  try { value = text ? JSON.parse(text) : null; } catch { /* told below */ }
  if (reply.ok && (value !== null || !text)) return value;
  const said = value?.error;
  const otherwise = `The server answered ${reply.status} ${reply.statusText}`;
  throw new ServerError(reply.status, said?.code ?? "reply", said?.message ?? otherwise);
}

/** The object without its empty entries. */
export const filled = (plain) =>
  Object.fromEntries(Object.entries(plain).filter(([, value]) => value !== "" && value !== null && value !== undefined));

const address = (path, plain) => `${path}?${new URLSearchParams(filled(plain))}`;

export const decide = (body, signal) => call("POST", "decide", { body, signal });
export const recall = (body, signal) => call("POST", "recall", { body: { ...body, candidates: true }, signal });
export const search = (body, signal) => call("POST", "search", { body, signal });
export const add = (body) => call("POST", "memories", { body });
export const list = (query, signal) => call("GET", address("memories", query), { signal });
export const remove = (id) => call("DELETE", `memories/${encodeURIComponent(id)}`);
export const sample = () => call("GET", "page/sample.json");
export const reports = () => call("GET", "page/report.json");
