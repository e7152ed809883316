/**
 * A client of retcon's HTTP service. What goes in and what comes out is typed by the service's OpenAPI document; the
 * types in schema.ts are generated from it.
 *
 *     const memory = new Retcon({ url: "http://127.0.0.1:8700", key: process.env.RETCON_KEY });
 *     await memory.add({ text: "I adopted a cat named Pixel.", user_id: "ann" });
 *     const { text } = await memory.recall({ query: "What is my cat called?", budget: 64, user_id: "ann" });
 */
import createClient, { type Client } from "openapi-fetch";

import type { components, operations, paths } from "./schema.js";

export type { components, operations, paths };
export type Schemas = components["schemas"];

export interface Options {
  /** Where the service is; http://127.0.0.1:8700 if not said. */
  url?: string | undefined;
  /** A key of the service, `rk-...`; a service without keys needs none. */
  key?: string | undefined;
  /** In place of the global fetch. */
  fetch?: ((request: Request) => Promise<Response>) | undefined;
}

/** What a call may be given beside its words. */
export interface Call {
  signal?: AbortSignal | undefined;
}

/** The same write with the same key is done once, and answered the same each time. */
export interface Write extends Call {
  idempotencyKey?: string | undefined;
}

/** One event of an answer that is streamed: each look as it is read, then the answer. */
export type AskEvent =
  | { event: "seen"; data: { look: number; action: string } & Record<string, unknown> }
  | { event: "answer"; data: Schemas["AskOut"] };

type Query<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;
type Answer<T> = { data?: T; error?: unknown; response: Response };

/** What the service says is wrong: its status, a code for programs and a line for people. */
export class RetconError extends Error {
  override readonly name = "RetconError";

  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    /** Seconds to wait before another try, where the service says so. */
    readonly retryAfter?: number,
  ) {
    super(message);
  }

  static of(error: unknown, response: Response): RetconError {
    const said = (error as { error?: { code?: unknown; message?: unknown } } | undefined)?.error;
    const wait = Number(response.headers.get("retry-after") ?? NaN);
    const message = typeof said?.message === "string" ? said.message : `${response.status} ${response.statusText}`;
    const code = typeof said?.code === "string" ? said.code : "unknown";
    return new RetconError(response.status, code, message, Number.isFinite(wait) ? wait : undefined);
  }
}

/** The verbs of the service. Each resolves with its answer, or rejects with a RetconError. */
export class Retcon {
  /** Every route as the document has it, for what the verbs leave out. */
  readonly http: Client<paths>;

  constructor({ url = "http://127.0.0.1:8700", key, fetch }: Options = {}) {
    const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
    this.http = createClient<paths>({ baseUrl: url.replace(/\/+$/, ""), headers, ...(fetch && { fetch }) });
  }

  /** Store a text, or a list of messages, as raw notes. */
  add(body: Schemas["AddIn"], how: Write = {}): Promise<Schemas["AddOut"]> {
    return take(this.http.POST("/memories", { body, ...writing(how) }));
  }

  /** Correct a note; the older one stays in the history. */
  supersede(id: string, body: Schemas["SupersedeIn"], how: Write = {}): Promise<Schemas["SupersedeOut"]> {
    const { params, ...rest } = writing(how);
    return take(this.http.POST("/memories/{id}/supersede", { body, params: { ...params, path: { id } }, ...rest }));
  }

  /** Correct the newest version of a note. */
  update(id: string, body: Schemas["SupersedeIn"], how: Write = {}): Promise<Schemas["UpdateOut"]> {
    const { params, ...rest } = writing(how);
    return take(this.http.PUT("/memories/{id}", { body, params: { ...params, path: { id } }, ...rest }));
  }

  /** Delete a memory with all its versions. */
  delete(id: string, how: Write = {}): Promise<Schemas["DeletedOut"]> {
    const { params, ...rest } = writing(how);
    return take(this.http.DELETE("/memories/{id}", { params: { ...params, path: { id } }, ...rest }));
  }

  /** Delete all notes of a user, agent or run. */
  deleteAll(whose: Query<"delete_memories">, how: Write = {}): Promise<Schemas["DeletedOut"]> {
    const { params, ...rest } = writing(how);
    return take(this.http.DELETE("/memories", { params: { ...params, query: whose }, ...rest }));
  }

  /** One note. */
  get(id: string, how: Call = {}): Promise<Schemas["NoteOut"]> {
    return take(this.http.GET("/memories/{id}", { params: { path: { id } }, ...calling(how) }));
  }

  /** Notes in the order they were added, or the newest first, page by page. */
  list(query: Query<"list_memories"> = {}, how: Call = {}): Promise<Schemas["ListOut"]> {
    return take(this.http.GET("/memories", { params: { query }, ...calling(how) }));
  }

  /** Every version of a note, oldest first, page by page. */
  history(id: string, query: Query<"get_history"> = {}, how: Call = {}): Promise<Schemas["PageOut"]> {
    return take(this.http.GET("/memories/{id}/history", { params: { path: { id }, query }, ...calling(how) }));
  }

  /** The raw notes behind a note, or behind the record that a recall names. */
  sources(id: string, how: Call = {}): Promise<Schemas["SourcesOut"]> {
    return take(this.http.GET("/memories/{id}/sources", { params: { path: { id } }, ...calling(how) }));
  }

  /** The best notes for a query. */
  search(body: Schemas["SearchIn"], how: Call = {}): Promise<Schemas["SearchOut"]> {
    return take(this.http.POST("/search", { body, ...calling(how) }));
  }

  /** The best text within a budget, and why. */
  recall(body: Schemas["RecallIn"], how: Call = {}): Promise<Schemas["RecallOut"]> {
    return take(this.http.POST("/recall", { body, ...calling(how) }));
  }

  /** The decision alone. */
  decide(body: Schemas["DecideIn"], how: Call = {}): Promise<Schemas["DecideOut"]> {
    return take(this.http.POST("/decide", { body, ...calling(how) }));
  }

  /** The answer of the service's model to a question, from what is recalled. */
  ask(body: Schemas["AskIn"], how: Call = {}): Promise<Schemas["AskOut"]> {
    const asked = this.http.POST("/ask", { body, ...calling(how) });
    return take(asked as Promise<Answer<Schemas["AskOut"]>>); // text alone comes where events are asked for
  }

  /** The same, event by event as it happens. Whoever stops iterating stops the work. */
  async *askStream(body: Schemas["AskIn"], how: Call = {}): AsyncGenerator<AskEvent, void, undefined> {
    const wanted = { headers: { accept: "text/event-stream" }, parseAs: "stream" as const };
    const parts = await take<ReadableStream<Uint8Array> | null>(
      this.http.POST("/ask", { body, ...wanted, ...calling(how) }),
    );
    for await (const { event, data } of events(parts)) {
      if (event === "error") throw RetconError.of(data, new Response(null, { status: 200 }));
      yield { event, data } as AskEvent;
    }
  }

  /** Whether the service is well, and how many notes this key may see. */
  health(how: Call = {}): Promise<Schemas["HealthOut"]> {
    return take(this.http.GET("/health", calling(how)));
  }

  /** Whether new requests should be sent there; an error with the code `draining` once a stop has begun. */
  ready(how: Call = {}): Promise<Schemas["ReadyOut"]> {
    return take(this.http.GET("/ready", calling(how)));
  }

  /** Counts and times as Prometheus text; for admin keys. */
  metrics(how: Call = {}): Promise<string> {
    return take(this.http.GET("/metrics", { parseAs: "text", ...calling(how) }));
  }
}

async function take<T>(asked: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await asked;
  if (error !== undefined || !response.ok) throw RetconError.of(error, response);
  return data as T;
}

function calling({ signal }: Call): { signal?: AbortSignal } {
  return signal === undefined ? {} : { signal };
}

function writing({ idempotencyKey, signal }: Write) {
  const header = idempotencyKey === undefined ? {} : { "Idempotency-Key": idempotencyKey };
  return { params: { header }, ...calling({ signal }) };
}

/** The events of a body as they come: a name and JSON each. */
async function* events(body: ReadableStream<Uint8Array> | null): AsyncGenerator<{ event: string; data: unknown }> {
  if (body === null) return;
  const reader = body.pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const whole = (rest + value).split("\n\n");
      rest = whole.pop() ?? "";
      for (const block of whole) {
        const lines = block.split("\n");
        const find = (name: string) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2) ?? "";
        yield { event: find("event"), data: JSON.parse(find("data")) };
      }
    }
  } finally {
    await reader.cancel();
  }
}
