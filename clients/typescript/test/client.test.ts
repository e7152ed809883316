// Every verb of the packed client, against a real server: RETCON_URL, with the keys of ann and of an administrator.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Retcon, RetconError, type AskEvent } from "retcon-memory";

const url = process.env["RETCON_URL"];
const ann = new Retcon({ url, key: process.env["RETCON_KEY"] });
const admin = new Retcon({ url: `${url}/`, key: process.env["RETCON_ADMIN"] });
const turns = [
  { role: "user", content: "I adopted a cat named Pixel." },
  { role: "assistant", content: "Lovely! How old is Pixel?" },
];

test("notes go in once under an idempotency key, and come back as they are", async () => {
  const write = () => ann.add({ messages: turns, session: "s1" }, { idempotencyKey: "visit-1" });
  const first = await write();
  assert.deepEqual(await write(), first);
  const [cat] = first.results;
  assert.equal(cat?.memory, turns[0]?.content);
  assert.equal((await ann.get(cat?.id ?? "")).user_id, "ann");
  assert.equal((await ann.health()).notes, 2);
  assert.equal((await ann.ready()).ready, true);
});

test("a recall keeps its budget and says why", async () => {
  const found = await ann.recall({ query: "What is my cat called?", budget: 32, candidates: true });
  assert.match(found.text, /Pixel/);
  assert.ok(found.tokens <= 32);
  assert.ok(found.decision.reason.length > 0);
  assert.ok((found.candidates ?? []).length > 0);
  const decided = await ann.decide({ query: "cat", budget: 32 });
  assert.ok(decided.action in decided.utilities || decided.reason);
  assert.equal((await ann.search({ query: "cat", top_k: 1 })).results.length, 1);
});

test("a correction supersedes, and history and sources tell", async () => {
  const id = (await ann.add({ text: "The rent is 725.", id: "a/b 1" })).results[0]?.id ?? "";
  const newer = await ann.supersede("a/b 1", { text: "The rent is 740." }); // a name with a slash, as it was given
  assert.equal(newer.supersedes, id);
  const newest = await ann.update(newer.id, { text: "The rent is 750." });
  assert.deepEqual((await ann.history(id)).results.map((note) => note.memory).slice(1), [
    "The rent is 740.",
    "The rent is 750.",
  ]);
  assert.equal((await ann.sources(newest.id)).kind, "note");
  assert.equal((await ann.delete(newest.id)).deleted, 3);
});

test("pages go on where the one before ended", async () => {
  const first = await ann.list({ limit: 1 });
  const second = await ann.list({ limit: 1, ...(first.next ? { cursor: first.next } : {}) });
  assert.equal(first.results.length + second.results.length, 2);
  assert.notEqual(first.results[0]?.id, second.results[0]?.id);
});

test("an answer comes whole, and event by event", async () => {
  const whole = await ann.ask({ question: "What is my cat called?", budget: 64 });
  assert.equal(whole.answer, "Pixel");
  const seen: AskEvent[] = [];
  for await (const event of ann.askStream({ question: "And my cat's name?", budget: 64 })) seen.push(event);
  assert.deepEqual(seen.map(({ event }) => event), ["seen", "answer"]);
  const last = seen.at(-1);
  assert.equal(last?.event === "answer" ? last.data.answer : null, "Pixel");
});

test("an error has its status, its code and one line", async () => {
  await assert.rejects(ann.get("nope"), (error: unknown) => {
    assert.ok(error instanceof RetconError);
    assert.deepEqual([error.status, error.code], [404, "not_found"]);
    assert.match(error.message, /no note has the id 'nope'/);
    return true;
  });
  await assert.rejects(ann.recall({ query: "cat", user_id: "bob" }), { status: 403, code: "scope" });
  await assert.rejects(new Retcon({ url }).list(), { status: 401, code: "key" });
  await assert.rejects(ann.metrics(), { status: 403 });
  await assert.rejects(ann.askStream({ question: "", budget: -1 }).next(), { status: 422 });
  await assert.rejects(new Retcon({ url: "http://127.0.0.1:1" }).health(), TypeError);
});

test("a call can be given up", async () => {
  await assert.rejects(ann.recall({ query: "cat" }, { signal: AbortSignal.abort() }), { name: "AbortError" });
});

test("an administrator reads the metrics, and deletes a user's notes", async () => {
  assert.match(await admin.metrics(), /retcon_requests_total/);
  assert.equal((await admin.deleteAll({ user_id: "ann" })).deleted, 2);
  const { data } = await admin.http.GET("/health"); // every route is there, too, as the document has it
  assert.equal(data?.notes, 0);
});
