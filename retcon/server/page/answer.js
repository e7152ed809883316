// The answer of the server's model, on request: with how sure it is, and forgotten with the question.

import { ask } from "./api.js";
import { $, many, say } from "./dom.js";
import { newest } from "./newest.js";

const SURE = [[0.8, "Very likely right"], [0.6, "Probably right"], [0.4, "May be right"], [0, "Probably wrong"]];

/** Start the button. What comes back forgets the answer. `question()` is what the inputs say, `failed` the page's. */
export function answerButton(question, failed) {
  const go = () => {
    show("", "The model is reading …");
    jobs.push(question(), { urgent: true });
  };
  const jobs = newest(async (job, signal) => draw(await ask(job, signal)), (error) => {
    show();
    failed(error, { at: $("reader"), retry: go });
  });
  $("answer").addEventListener("click", go);
  return () => {
    jobs.stop();
    show();
  };
}

function draw({ answer, refused, confidence, look, looks }) {
  const reply = refused ? `The best reply is “${looks[look - 1].reply}”. ` : "";
  const words = confidence !== null && SURE.find(([least]) => confidence >= least)[1];
  const sure = words ? `${words}: about ${Math.round(100 * confidence)} in 100 such answers are. ` : "";
  const nothing = refused ? "Not sure enough to answer." : "Memory does not hold the answer.";
  show(answer ?? nothing, `${reply}${sure}${many(looks.length, "text")} read.`);
}

function show(answer = "", told = "") {
  say($("answered"), answer);
  say($("sure"), told);
}
