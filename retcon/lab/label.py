"""Questions x budgets x actions x realizations -> outcomes: generate, answer, judge.

Three stages, each over all cells at once, so that a local model gets large batches and an endpoint its full
concurrency. Every reply goes through one cache first: after a kill at any point the same call goes on where it stopped,
and pays for nothing twice. Prompts are the same for every action. A reply that fails is asked for again; a cell that
still has none is left out of the outcomes and counted, never scored.

An arm is an action, focused on the query; "merge-agnostic" is merge written without it.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from retcon import answer, holds, operate, pack
from retcon.cache import Arrived, Arriving, CachedChat, Replies, arrivals, cache_key
from retcon.confidence import SIGNALS, Witnesses
from retcon.drafts import HOLDS, traits
from retcon.errors import InputError, MalformedReplyError, ModelError
from retcon.fidelity import check
from retcon.lab import judge
from retcon.lab.outcomes import JUDGE, SIGNAL, TRAIT, Outcomes, from_rows
from retcon.lab.protocols import Case
from retcon.model import Ask, Chat, Reply
from retcon.note import RETAIN, REWRITE, Packed
from retcon.tokens import counter

AGNOSTIC = "-agnostic"
READING, GRADING = f"answer-{answer.PROMPTS}", f"judge-{judge.PROMPTS}"  # versions, for the cache
HOLDING = f"holds-{holds.PROMPTS}"
TEMPERATURE = 0.7  # of realizations after the first, which is greedy
CHUNK = 512  # asks that are sent, and then kept, at once ...
ONE_BY_ONE = {"gguf": 8}  # ... but few by an adapter that answers them one by one: a kill loses what is not kept yet
ATTEMPTS = 3
UNREADABLE = "neither yes nor no"
DECIMALS = 6  # of a signal or a trait

Progress = Callable[[str, int, int], None]  # stage, done, total


@dataclass(frozen=True, slots=True)
class Cell:
    """One outcome to be measured."""

    case: Case
    budget: int
    arm: str
    realization: int
    pair: str = ""  # of a retention: the arm whose counterpart it is, with a draw of its own

    @property
    def action(self) -> str:
        return self.arm.removesuffix(AGNOSTIC)

    @property
    def focus(self) -> bool:
        return not self.arm.endswith(AGNOSTIC)

    @property
    def draw(self) -> dict[str, Any]:
        """How operator and reader are sampled: greedy at first, then by a seed from question, realization and pair."""
        if self.realization == 0:
            return {"temperature": 0.0, "seed": None}
        drawn = f"{self.case.question.id}/{self.realization}" + (f"/{self.pair}" if self.pair else "")
        digest = hashlib.sha256(drawn.encode()).digest()
        return {"temperature": TEMPERATURE, "seed": int.from_bytes(digest[:4], "big") >> 1}


@dataclass(frozen=True, slots=True)
class CellContext:
    """What a cell's action made."""

    packed: Packed
    calls: int = 0
    generated: int = 0  # tokens that the model wrote
    prompted: int = 0  # tokens that it read for that
    seconds: float = 0.0
    unsupported: bool | None = None


@dataclass(frozen=True, slots=True)
class LabelRun:
    """The outcomes, what could not be measured, and what it took."""

    outcomes: Outcomes | None  # None where not one cell could be measured
    failures: Mapping[str, int]  # "stage: reason" -> cells; those of the stage "judge" have a row without its verdict
    calls: int  # paid in this run
    reused: int  # answered by the cache
    answers: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)  # the replies themselves, a row each


@dataclass(frozen=True, slots=True)
class Probe:
    """The first few asks of a run: how long one of them took, and how many had to be paid for."""

    seconds: float
    calls: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run will ask for: calls and tokens by stage; `kept` of the writing calls are in the cache already.

    Calls and written tokens are the most there can be, where no reply has to be asked for twice.
    """

    cells: int
    calls: Mapping[str, int]
    prompt_tokens: int
    completion_tokens: int
    kept: int

    def cost(self, *, price_in: float, price_out: float) -> float:
        """In the currency of prices given for a million tokens."""
        return (self.prompt_tokens * price_in + self.completion_tokens * price_out) / 1e6


class Asker:
    """A model behind a cache, asked in large batches. What fails is asked again, then stays an error."""

    def __init__(
        self, chat: Chat, cache: Replies, *, chunk: int | None = None, attempts: int = ATTEMPTS,
        progress: Progress | None = None, pause: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self.chat, self.cache, self.attempts = chat, cache, attempts
        self.chunk = chunk or (16 * CHUNK if isinstance(chat, Arriving) else ONE_BY_ONE.get(chat.kind, CHUNK))
        self.progress, self.pause = progress, pause
        self.known: dict[str, Reply | ModelError] = {}
        self.calls = self.reused = 0

    def key(self, ask: Ask, version: str) -> str:
        """The cache's key of an ask."""
        return cache_key(self.chat, ask, realization=0, prompt_version=version)  # a realization has a seed of its own

    def ask_all(self, asks: Iterable[Ask], version: str, stage: str, *, worded: bool = False) -> None:
        """Bring a reply to each of the asks into `known`; with `worded`, one without a word is a failure too."""
        waiting = {self.key(ask, version): ask for ask in asks}
        waiting = {key: ask for key, ask in waiting.items() if not isinstance(self.known.get(key), Reply)}
        for attempt in range(self.attempts):
            if not waiting:
                return
            if attempt:
                self.pause(min(2.0**attempt, 30.0))
            self._round(waiting, version, stage, _RejectEmpty(self.chat) if worded else self.chat)
            waiting = {key: ask for key, ask in waiting.items() if not isinstance(self.known[key], Reply)}

    def _round(self, waiting: Mapping[str, Ask], version: str, stage: str, chat: Chat) -> None:
        keys = list(waiting)
        for start in range(0, len(keys), self.chunk):
            some = keys[start : start + self.chunk]
            cached, done = CachedChat(chat, self.cache, version), start
            for found in cached.arrivals([waiting[key] for key in some]):
                self.known |= {some[place]: reply for place, reply in found.items()}
                done += len(found)
                if self.progress is not None:
                    self.progress(stage, done, len(keys))
            self.calls += cached.misses
            self.reused += cached.hits


class _RejectEmpty:
    """The model, with an error in place of a reply without a word, so that it is asked for again and never kept."""

    def __init__(self, chat: Chat) -> None:
        self.chat, self.name, self.kind = chat, chat.name, chat.kind

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        return [self._check(reply) for reply in self.chat(asks)]

    def arrivals(self, asks: Sequence[Ask], /) -> Iterator[Arrived]:
        for some in arrivals(self.chat, asks):
            yield {place: self._check(reply) for place, reply in some.items()}

    def _check(self, reply: Reply | ModelError) -> Reply | ModelError:
        empty = isinstance(reply, Reply) and not reply.text.strip()
        return MalformedReplyError(f"{self.name}: a reply without a word") if empty else reply


class _Replay:
    """A model that answers what the asker knows, and notes what it does not."""

    def __init__(self, asker: Asker, version: str, wanted: dict[str, Ask]) -> None:
        self.asker, self.version, self.wanted = asker, version, wanted
        self.name, self.kind = asker.chat.name, asker.chat.kind

    def __call__(self, asks: Sequence[Ask], /) -> list[Reply | ModelError]:
        found: list[Reply | ModelError] = []
        for ask in asks:
            key = self.asker.key(ask, self.version)
            if key not in self.asker.known:
                self.wanted[key] = ask
            found.append(self.asker.known.get(key) or _WaitingError("not asked yet"))
        return found


class _WaitingError(ModelError):
    code = "waiting"


def cells(
    cases: Iterable[Case], arms: Sequence[str], *, budgets: Sequence[int] | None = None, realizations: int = 1,
    paired: bool = False,
) -> list[Cell]:  # fmt: skip
    """Every cell, question by question.

    `paired` reads whole notes once for every arm that a model writes, as the paper does: each arm has a retention of
    its own in every realization. The greedy ones are one reply.
    """
    check_arms(arms)
    if realizations < 1:
        raise InputError(f"realizations are 1 or more, not {realizations}")
    return [
        Cell(case, budget, arm, realization, pair)
        for case in cases
        for realization in range(realizations)
        for budget in budgets or case.protocol.budgets
        for arm in arms
        for pair in (_pairs(arms) if paired and arm == RETAIN else ("",))
    ]


def _pairs(arms: Sequence[str]) -> Sequence[str]:
    """The arms that a model writes; where none does, one retention without a pair."""
    written = [arm for arm in arms if operate.ACTIONS[arm.removesuffix(AGNOSTIC)].needs_model]
    return written or [""]


def check_arms(arms: Sequence[str]) -> None:
    """An error where one is no action, or agnostic in name only."""
    operate.check_actions(arm.removesuffix(AGNOSTIC) for arm in arms)
    if len(set(arms)) < len(arms):
        raise InputError(f"an action stands twice: {', '.join(arms)}")
    if RETAIN not in arms:
        raise InputError(f"gains are over retain: add it to {', '.join(arms)}")
    for arm in arms:
        if arm.endswith(AGNOSTIC) and not operate.ACTIONS[arm.removesuffix(AGNOSTIC)].needs_model:
            raise InputError(f"{arm.removesuffix(AGNOSTIC)} has no agnostic form: it writes nothing")


def estimate(todo: Sequence[Cell], writer: Chat, cache: Replies, *, judged: bool = True) -> Forecast:
    """What a run over these cells will ask, before anything is asked. Reading is estimated from budgets."""
    asker, wanted = Asker(writer, cache), dict[str, Ask]()
    for cell in todo:
        _generate(cell, asker, wanted)
    kept = len(cache.get_replies(list(wanted)))
    count = counter("estimate")  # errs high; a call costs tokens of the model, whatever the protocol counts
    prompts = sum(count(message["content"]) for ask in wanted.values() for message in ask.messages)
    reads = len(todo)
    calls = {"write": len(wanted), "read": reads} | ({"judge": reads} if judged else {})
    held = sum(cell.budget for cell in todo)
    longest = answer.LONGEST + (judge.LONGEST if judged else 0)
    return Forecast(
        cells=len(todo),
        calls=calls,
        prompt_tokens=prompts + held + reads * (150 + (200 if judged else 0)),
        completion_tokens=sum(ask.max_tokens for ask in wanted.values()) + reads * longest,
        kept=kept,
    )


def probe(todo: Sequence[Cell], writer: Chat, cache: Replies, *, most: int = 8) -> Probe:
    """How long an ask takes, from a few that the run needs anyway; they are kept, so nothing is paid twice.

    They are spread over the run. Where every one of them fails there is no point in going on: the first error is
    raised.
    """
    asker = Asker(writer, cache)
    free = [cell for cell in todo if not operate.ACTIONS[cell.action].needs_model]
    asks: dict[str, Ask] = {}
    for cell in free[:: max(1, len(free) // most)][:most]:
        context = _generate(cell, asker, {})
        assert isinstance(context, CellContext)
        ask = _reader_ask(cell, context)
        asks[asker.key(ask, READING)] = ask
    cached = CachedChat(writer, cache, READING)
    started = time.perf_counter()
    replies = cached(list(asks.values()))
    seconds = time.perf_counter() - started
    for reply in replies:
        if isinstance(reply, ModelError) and not any(isinstance(each, Reply) for each in replies):
            raise reply
    if replies and not any(isinstance(reply, Reply) and reply.text.strip() for reply in replies):
        raise MalformedReplyError(
            f"{writer.name}: {len(replies)} replies of {answer.LONGEST} tokens at most, and not a word in them; a model"
            " that thinks first must be told not to"
        )
    return Probe(seconds / cached.misses if cached.misses else 0.0, cached.misses)


def label(
    todo: Sequence[Cell], writer: Chat, cache: Replies, *, reader: Chat | None = None, grader: Chat | None = None,
    judged: bool = True, guard: bool = True, holding: bool = False, chunk: int | None = None, attempts: int = ATTEMPTS,
    progress: Progress | None = None, pause: Callable[[float], None] = time.sleep,
) -> LabelRun:  # fmt: skip
    """Measure every cell. `writer` writes records; `reader` answers and `grader` judges, the same model if not said.

    Without `guard` no record is checked for claims without a source, which takes a while for long clusters. With
    `holding` the writer is also asked, in one token, whether each text holds the answer.
    """

    def asker(chat: Chat) -> Asker:
        return Asker(chat, cache, chunk=chunk, attempts=attempts, progress=progress, pause=pause)

    writes, reads = asker(writer), asker(reader or writer)
    grades = asker(grader or reader or writer) if judged else None
    contexts = _write_all(todo, writes)
    replies = _read_all(todo, contexts, reads)
    held = _hold_all(todo, contexts, writes) if holding else None
    verdicts = _grade_all(todo, replies, grades) if grades is not None else {}
    rows, texts, failures, seen = [], [], Counter[str](), dict[tuple[str, int], _Seen]()
    for place, (cell, context, reply) in enumerate(zip(todo, contexts, replies, strict=True)):
        if isinstance(context, ModelError) or isinstance(reply, ModelError):
            failures[_failure(context, reply)] += 1
            continue
        verdict = verdicts.get(place)
        if isinstance(verdict, str):  # the row stays, with the verdicts of the other judges
            failures[f"judge: {verdict}"] += 1
            verdict = None
        known = cell.case.question.id, cell.budget
        if known not in seen:
            # of one question at a time: what the candidates of a whole run can testify to fills the memory
            seen = {key: each for key, each in seen.items() if key[0] == known[0]} | {known: _Seen.of(cell)}
        checked = _check_support(cell, context) if guard else context
        rows.append(_row(cell, seen[known], checked, reply, verdict, (writes, reads, grades)))
        if held is not None:
            rows[-1][TRAIT + HOLDS] = held[place]
        texts.append(_texts(cell, checked, reply, rows[-1]))
    askers = [writes, reads, *([grades] if grades is not None else [])]
    return LabelRun(
        outcomes=from_rows(rows) if rows else None,
        failures=dict(failures),
        calls=sum(each.calls for each in askers),
        reused=sum(each.reused for each in askers),
        answers=tuple(texts),
    )


# -- the stages --------------------------------------------------------------------------------------------------------


def _write_all(todo: Sequence[Cell], asker: Asker) -> list[CellContext | ModelError]:
    """Contexts of all cells. An action that asks again on the strength of its first reply gets another round."""
    made: list[CellContext | ModelError] = [_WaitingError("not made yet")] * len(todo)
    left = list(range(len(todo)))
    while left:
        wanted: dict[str, dict[str, Ask]] = {}
        for place in left:
            cell = todo[place]
            made[place] = _generate(cell, asker, wanted.setdefault(cell.action, {}))
        left = [place for place in left if isinstance(made[place], _WaitingError)]
        for action, asks in wanted.items():
            # a note that holds nothing for the question may be rewritten to nothing; a record of nothing is a failure
            asker.ask_all(asks.values(), _version(action), f"write {action}", worded=action != REWRITE)
    return made


def _version(action: str) -> str:
    return f"operate-{operate.ACTIONS[action].version}"


def _generate(cell: Cell, asker: Asker, wanted: dict[str, Ask]) -> CellContext | ModelError:
    if cell.action == RETAIN:
        return CellContext(cell.case.retain(cell.budget))
    count = cell.case.protocol.count
    if not operate.ACTIONS[cell.action].needs_model:
        return CellContext(operate.operate(cell.action, cell.case.at(cell.budget), cell.budget, count=count))
    try:
        packed = operate.operate(
            cell.action, cell.case.at(cell.budget), cell.budget, count=count, focus=cell.focus,
            chat=_Replay(asker, _version(cell.action), wanted), length=cell.case.protocol.length, **cell.draw,
        )  # fmt: skip
    except ModelError as error:
        return error
    spent = packed.usage
    return CellContext(packed, spent.model_calls, spent.completion_tokens, spent.prompt_tokens, spent.seconds)


def _check_support(cell: Cell, context: CellContext) -> CellContext:
    """The context, with the guard's finding where a model wrote it."""
    if not context.calls or not context.packed.text:
        return context
    found = check(context.packed.text, cell.case.at(cell.budget).notes, query=cell.case.question.text)
    return replace(context, unsupported=not found.ok)


def _read_all(
    todo: Sequence[Cell], contexts: Sequence[CellContext | ModelError], asker: Asker
) -> list[Reply | ModelError]:
    asks = [
        None if isinstance(context, ModelError) else _reader_ask(cell, context)
        for cell, context in zip(todo, contexts, strict=True)
    ]
    asker.ask_all([ask for ask in asks if ask is not None], READING, "read")
    return [ModelError("there is no context") if ask is None else asker.known[asker.key(ask, READING)] for ask in asks]


def _reader_ask(cell: Cell, context: CellContext) -> Ask:
    asked = cell.case.question
    return answer.prompt(asked.text, context.packed.text, asked_on=asked.date, logprobs=True, **cell.draw)


def _hold_all(todo: Sequence[Cell], contexts: Sequence[CellContext | ModelError], asker: Asker) -> list[float | None]:
    """How likely the model finds that each text holds the answer; None of an empty text, and where it does not say."""
    asks = {
        place: holds.prompt(cell.case.question.text, context.packed.text)
        for place, (cell, context) in enumerate(zip(todo, contexts, strict=True))
        if isinstance(context, CellContext) and context.packed.text
    }
    asker.ask_all(asks.values(), HOLDING, "hold")
    said = {place: asker.known[asker.key(ask, HOLDING)] for place, ask in asks.items()}
    found = {place: holds.likelihood(each) for place, each in said.items() if isinstance(each, Reply)}
    return [None if (p := found.get(place)) is None else round(p, DECIMALS) for place in range(len(todo))]


def _grade_all(todo: Sequence[Cell], replies: Sequence[Reply | ModelError], asker: Asker) -> dict[int, float | str]:
    """Place -> the judge's verdict, or why there is none."""
    asks = {
        place: judge.prompt(_submission(cell, reply))
        for place, (cell, reply) in enumerate(zip(todo, replies, strict=True))
        if isinstance(reply, Reply)
    }
    asker.ask_all(asks.values(), GRADING, "judge")
    found = {place: _verdict(asker, ask) for place, ask in asks.items()}
    again = {place: _insist(asker, asks[place]) for place, seen in found.items() if seen == UNREADABLE}
    asker.ask_all(again.values(), GRADING, "judge again")
    return found | {place: _verdict(asker, ask) for place, ask in again.items()}


def _verdict(asker: Asker, ask: Ask) -> float | str:
    said = asker.known[asker.key(ask, GRADING)]
    if isinstance(said, ModelError):
        return said.code
    verdict = judge.verdict(said)
    return UNREADABLE if verdict is None else verdict


def _insist(asker: Asker, ask: Ask) -> Ask:
    """The ask once more, after a reply that was neither yes nor no."""
    said = asker.known[asker.key(ask, GRADING)]
    assert isinstance(said, Reply)
    more = ({"role": "assistant", "content": said.text}, {"role": "user", "content": "One word: yes or no?"})
    return replace(ask, messages=(*ask.messages, *more))


def _submission(cell: Cell, reply: Reply) -> judge.Submission:
    asked = cell.case.question
    return judge.Submission(asked.text, asked.answer, reply.text, asked.raw_type, asked.abstention)


# -- rows --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the rows of a question share at one budget: its features, and what its candidates can testify to."""

    features: Mapping[str, float]
    witnesses: Witnesses

    @classmethod
    def of(cls, cell: Cell) -> _Seen:
        return cls(cell.case.features(cell.budget), Witnesses.of(cell.case.at(cell.budget)))

    def signals(self, reply: Reply, context: CellContext) -> dict[str, float | None]:
        """What speaks for the reply; nothing of one that gives no answer."""
        if answer.abstains(reply.text):
            return dict.fromkeys(SIGNAL + name for name in SIGNALS)
        found = self.witnesses.signals(reply.text, context.packed.text)
        return {SIGNAL + name: round(value, DECIMALS) for name, value in found.items()}

    def traits(self, context: CellContext) -> dict[str, float]:
        """What the text shows of the question."""
        found = traits(context.packed.text, self.witnesses)
        return {TRAIT + name: round(value, DECIMALS) for name, value in found.items()}


def _failure(context: CellContext | ModelError, reply: Reply | ModelError) -> str:
    """Why a cell has no outcome."""
    if isinstance(context, ModelError):
        return f"write: {context.code}"
    return f"read: {reply.code}" if isinstance(reply, ModelError) else "none"


def _row(
    cell: Cell, seen: _Seen, context: CellContext, reply: Reply, verdict: float | None,
    askers: tuple[Asker, Asker, Asker | None],
) -> dict[str, Any]:  # fmt: skip
    writes, reads, grades = askers
    asked, protocol, case = cell.case.question, cell.case.protocol, _submission(cell, reply)
    judges = {} if grades is None else {f"{JUDGE}llm": verdict}
    judges |= {JUDGE + name: score(case) for name, score in judge.DETERMINISTIC.items()}
    return {
        "dataset": asked.dataset, "setting": protocol.name, "question_id": asked.id,
        "conversation": asked.conversation, "type": asked.type or "", "raw_type": asked.raw_type,
        "abstention": "yes" if asked.abstention else "", "budget": cell.budget, "action": cell.arm,
        "realization": cell.realization, "pair": cell.pair, **seen.features,
        "context_tokens": context.packed.tokens, "generated_tokens": context.generated,
        "model_calls": context.calls, "prompted_tokens": context.prompted,
        "reader_tokens": reply.prompt_tokens + reply.completion_tokens,
        "seconds": round(context.seconds + reply.seconds, 4),
        "abstained": float(answer.abstains(reply.text)), "logprob": reply.logprob,
        "unsupported": None if context.unsupported is None else float(context.unsupported),
        **seen.signals(reply, context), **seen.traits(context), **judges,
        **settings(cell, writes.chat, reads.chat, None if grades is None else grades.chat),
    }  # fmt: skip


def settings(cell: Cell, writer: Chat, reader: Chat, grader: Chat | None) -> dict[str, str]:
    """What a row says of its making; the columns that a router's provenance is taken from."""
    protocol, action = cell.case.protocol, operate.ACTIONS[cell.action]
    return {
        "model": writer.name, "reader": reader.name, "grader": "" if grader is None else grader.name,
        "retriever": protocol.retriever, "counter": protocol.count.name, "embedder": protocol.embed.name,
        "accounting": protocol.accounting, "top_k": str(protocol.top_k), "cap": str(protocol.cap),
        "renderer": pack.RENDERER, "prompts": operate.PROMPTS,
        "answer_prompts": answer.PROMPTS, "grader_prompts": judge.PROMPTS,
        "focus": ("focused" if cell.focus else "agnostic") if action.needs_model else "",
        "length": f"{protocol.length.share:g}" if action.needs_model else "",
    }  # fmt: skip


def _texts(cell: Cell, context: CellContext, reply: Reply, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row's words, for people; they hold text of the benchmark and are kept apart from the outcomes."""
    asked = cell.case.question
    verdicts = {name: value for name, value in row.items() if name.startswith(JUDGE)}
    return {
        "question_id": asked.id, "type": asked.raw_type, "question": asked.text, "gold": asked.answer,
        "budget": cell.budget, "action": cell.arm, "realization": cell.realization, "context": context.packed.text,
        "reply": reply.text, "abstention": asked.abstention, **verdicts,
    }  # fmt: skip
