// What the types must refuse: each line after an expectation is an error for the compiler, else it complains itself.
import { Retcon, type Schemas } from "retcon-memory";

declare const memory: Retcon;

// @ts-expect-error a recall needs a query
void memory.recall({ budget: 64 });
// @ts-expect-error a budget is a number
void memory.recall({ query: "cat", budget: "64" });
// @ts-expect-error there is no such field
void memory.recall({ query: "cat", bugdet: 64 });
// @ts-expect-error an id is text
void memory.get(3);
// @ts-expect-error there is no such order
void memory.list({ order: "sideways" });
// @ts-expect-error there is no such route
void memory.http.GET("/memory");

void memory.recall({ query: "cat" }).then((found) => {
  const text: string = found.text;
  const tokens: number = found.tokens;
  // @ts-expect-error an answer has no such field
  return [text, tokens, found.txt];
});

export const note = (body: Schemas["AddIn"]): Schemas["AddIn"] => ({ ...body, metadata: { topic: "pets" } });
