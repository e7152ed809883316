"""How well the fidelity guard tells a faithful record from one with a single error in it.

    python -m bench.fidelity [--json PATH] [--seed N] [--show SPLIT]

Records are built, not generated, so that the truth is known. A faithful one takes sentences of a question's notes,
reorders and joins them, and may put them in the third person, date them, or write their numbers, dates and times in
another usual form. A corrupted one is a faithful one with one error: a number or date changed, a name swapped for one
of another question's, a name invented, a negation added or dropped, a quotation or a sentence with a number invented.
A changed value may by chance stand elsewhere in the notes; then the guard cannot see it, and it counts as missed.

LongMemEval's gold evidence, questions at even places for tuning and at odd places for confirming; then the sample
conversation built the same way, and paraphrases of the sample that were written by hand.

    caught        share of corrupted records with any finding        located   with a finding where the error is
    right kind    located, and called what it is                     alarms    share of faithful records with a finding
    strict        the same for `ok`, which ignores quotes and negations that no source has
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from bench import data_file
from retcon import sample
from retcon.fidelity import check
from retcon.note import Fidelity, Note
from retcon.words import sentences

FILE = "longmemeval_gold_evidence_500.json"
MONTHS = "January February March April May June July August September October November December".split()
SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
).split()
PEOPLE = (
    "Zebedee Okonkwo Marguerite Thistlewood Ignatius Valdez Philippa Rasmussen Benedikt Harlow Oona Castellane".split()
)
INVENTED = (
    "it felt like a second home",
    "never trust a blue kettle",
    "we owe everything to luck",
    "a total game of two",
)
ERRORS = (
    "number date name-swapped name-invented negation-added negation-dropped quote-invented sentence-invented".split()
)
KINDS = dict(zip(ERRORS, "number date name name negation negation quote number".split(), strict=True))


@dataclass(frozen=True, slots=True)
class RecordCase:
    """A record with its notes; `error` names what was put into it, `span` where."""

    id: str
    sources: tuple[Note, ...]
    query: str
    record: str
    error: str = ""
    span: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class EvidenceQuestion:
    """A question and the notes that hold its answer."""

    id: str
    query: str
    notes: tuple[Note, ...]


# - faithful records -


def write_faithful(question: EvidenceQuestion, rng: random.Random) -> str:
    """One to three sentences of the notes, in any order, each in one of the forms."""
    held = [(note, s) for note in question.notes for s in sentences(note.text) if 4 <= len(s.split()) <= 45]
    telling = [
        pair for pair in held if re.search(r"\d|[a-z] [A-Z][a-z]|n't|\bnot\b", pair[1]) and not pair[1].endswith("?")
    ]
    pool = telling if len(telling) > 1 else held
    if not pool:
        return ""
    taken = rng.sample(pool, min(len(pool), rng.choice((1, 2, 2, 3))))
    return " ".join(rng.choice(FORMS)(note, _end_sentence(s), rng) for note, s in taken)


def _end_sentence(sentence: str) -> str:
    return sentence if re.search(r"[.!?…\"”)]$", sentence) else sentence.rstrip(",;:-") + "."


def _day(note: Note) -> date:
    return date.fromisoformat((note.timestamp or "")[:10])


def _spoken(day: date, rng: random.Random) -> str:
    month = MONTHS[day.month - 1]
    forms = (f"{day.day} {month}", f"{month} {day.day}, {day.year}", f"{month} {_ordinal(day.day)}", day.isoformat())
    return rng.choice(forms)


def _ordinal(n: int) -> str:
    return f"{n}{'th' if 10 < n % 100 < 14 else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def plain(note: Note, sentence: str, rng: random.Random) -> str:
    """The sentence as it stands."""
    return sentence


def add_date(note: Note, sentence: str, rng: random.Random) -> str:
    """The sentence with the day on which it was said."""
    who = note.speaker or "user"
    spoken = _spoken(_day(note), rng)
    return rng.choice(
        (
            f"On {spoken} the {who} said: {sentence}",
            f"{spoken}: {sentence}",
            f"The {who} noted on {spoken} that {sentence}",
        )
    )


_PERSONS = (
    (r"\bI'm\b|\bI’m\b|\bI am\b", "the user is"), (r"\bI've\b|\bI’ve\b|\bI have\b", "the user has"),
    (r"\bI'd\b|\bI’d\b", "the user would"), (r"\bI'll\b|\bI’ll\b", "the user will"), (r"\bI\b", "the user"),
    (r"\bmy\b", "their"), (r"\bMy\b", "Their"), (r"\bme\b", "them"),
)  # fmt: skip


def third_person(note: Note, sentence: str, rng: random.Random) -> str:
    """The sentence told about the speaker; one with a quotation stays, since quotations are verbatim."""
    if re.search('["“”]', sentence):
        return sentence
    for pattern, other in _PERSONS:
        sentence = re.sub(pattern, other, sentence)
    return sentence[:1].upper() + sentence[1:]


def rewrite_values(note: Note, sentence: str, rng: random.Random) -> str:
    """The sentence with its numbers, dates and times in another form, in the third person half of the time."""
    day, month = _day(note), "|".join(MONTHS)
    changes: tuple[tuple[str, Callable[[re.Match[str]], str]], ...] = (
        (rf"\b({month}) (\d{{1,2}})(?:st|nd|rd|th)?\b(?!,? \d{{4}})", lambda m: f"{int(m[2])} {m[1]}"),
        (r"\b(\d{1,2})/(\d{1,2})\b(?!/)", lambda m: _spell_date(m)),
        (r"\b(\d{1,2}) ?(am|pm|AM|PM)\b", lambda m: f"{int(m[1]) % 12 + 12 * (m[2].lower() == 'pm'):02}:00"),
        (r"\byesterday\b", lambda m: f"on {_spoken(day - timedelta(days=1), rng)}"),
        (r"\btomorrow\b", lambda m: f"on {_spoken(day + timedelta(days=1), rng)}"),
        (r"\btoday\b", lambda m: f"on {_spoken(day, rng)}"),
        (r"\$(\d+)\b(?![,.]\d)", lambda m: f"{m[1]} dollars"),
        (r"(?<![\w.,:/$£€-])(\d{1,2})(?= [a-z]{3})", lambda m: SMALL[int(m[1])] if int(m[1]) < 21 else m[1]),
        (rf"(?<!-)\b({'|'.join(SMALL[2:])})\b(?!-)", lambda m: str(SMALL.index(m[1]))),
        (r"\b(\d),(\d{3})\b", lambda m: m[1] + m[2]),
    )
    for pattern, change in rng.sample(changes, 5):
        sentence = re.sub(pattern, change, sentence)
    return third_person(note, sentence, rng) if rng.random() < 0.5 else sentence


def _spell_date(found: re.Match[str]) -> str:
    m, d = int(found[1]), int(found[2])
    return f"{MONTHS[m - 1]} {d}" if 0 < m < 13 and 0 < d < 29 else found[0]


FORMS = (plain, add_date, third_person, rewrite_values, rewrite_values)


# - errors -

Corrupted = tuple[str, tuple[int, int]]


def _replace(text: str, found: re.Match[str], new: str) -> Corrupted:
    return text[: found.start()] + new + text[found.end() :], (found.start(), found.start() + len(new))


def _pick(pattern: str, text: str, rng: random.Random) -> re.Match[str] | None:
    found = list(re.finditer(pattern, text))
    return rng.choice(found) if found else None


def change_number(text: str, names: Sequence[str], rng: random.Random) -> Corrupted | None:
    """A number changed: one digit, two digits swapped, or a number word."""
    dates = rf"(?:{'|'.join(MONTHS)}) \d|\d\d?(?:st|nd|rd|th)? (?:{'|'.join(MONTHS)})|\d+[:/-]\d+|20\d\d"
    taken = [m.span() for m in re.finditer(dates, text)]
    spots = list(re.finditer(rf"(?<![\w.,])\d+(?:[.,]\d+)*|\b(?:{'|'.join(SMALL[2:])})\b", text))
    free = [m for m in spots if not any(a < m.end() and m.start() < b for a, b in taken)]
    free = [m for m in free if not re.match(r"[:/-]\d|(?:st|nd|rd|th)\b| ?[ap]m\b|[.)] [A-Z*]", text[m.end() :], re.I)]
    if not free:
        return None
    found = rng.choice(free)
    old = found[0]
    if old in SMALL:
        return _replace(text, found, rng.choice([w for w in SMALL[2:] if w != old]))
    places = [i for i, c in enumerate(old) if c.isdigit()]
    at = rng.choice(places)
    new = old[:at] + rng.choice([d for d in "123456789" if d != old[at]]) + old[at + 1 :]
    return _replace(text, found, new)


def change_date(text: str, names: Sequence[str], rng: random.Random) -> Corrupted | None:
    """A date or time changed: its month, its day, its weekday or its hour."""
    month = "|".join(MONTHS)
    forms = (
        rf"\b(?:{month}) \d{{1,2}}\b", rf"\b\d{{1,2}} (?:{month})\b", r"\b20\d\d-\d\d-\d\d\b", r"\b\d{1,2}:\d\d\b",
        r"\b\d{1,2}/\d{1,2}\b", r"\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b", r"\b\d{1,2} ?(?:am|pm|AM|PM)\b",
    )  # fmt: skip
    found = _pick("|".join(forms), text, rng)
    if found is None:
        return None
    old = found[0]
    if old.endswith("day"):
        days = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
        return _replace(text, found, rng.choice([d for d in days if d != old]))
    if (named := re.search(month, old)) and rng.random() < 0.5:
        return _replace(text, found, old.replace(named[0], rng.choice([m for m in MONTHS if m != named[0]])))
    numbers = list(re.finditer(r"\d+", old))
    last = numbers[-1] if "-" in old or ("/" in old and rng.random() < 0.5) else numbers[0]
    high = 12 if last.start() == 0 and not re.search(month, old) else 28
    value = rng.choice([v for v in range(1, high + 1) if v != int(last[0])])
    return _replace(text, found, old[: last.start()] + f"{value:0{len(last[0])}}" + old[last.end() :])


_NAME = r"(?<=[a-z,] )[A-Z][a-z]{2,}(?: [A-Z][a-z]{2,})*\b"


def names_in(text: str) -> list[str]:
    """Names as a simple pattern sees them: capitals after a lower-case word."""
    skip = {*MONTHS, "The", "User", "English", *(f"{d}day" for d in "Mon Tues Wednes Thurs Fri Satur Sun".split())}
    return [name for name in re.findall(_NAME, text) if not set(name.split()) & skip]


def swap_name(text: str, names: Sequence[str], rng: random.Random) -> Corrupted | None:
    """A name replaced by one that stands in another question's notes and not in these."""
    here = names_in(text)
    spots = [m for m in re.finditer(_NAME, text) if m[0] in here]
    return _replace(text, rng.choice(spots), rng.choice(names)) if spots and names else None


def invent_name(text: str, names: Sequence[str], rng: random.Random) -> Corrupted | None:
    """A person added, within a sentence or at the start of a new one."""
    name = rng.choice(PEOPLE) if rng.random() < 0.5 else " ".join(rng.sample(PEOPLE, 2))
    if rng.random() < 0.5 and text.endswith("."):
        extra = rng.choice((f" together with {name}.", f", as {name} suggested.", f" at {name}'s place."))
        return _at(text[:-1], extra, name)
    return _at(
        text,
        rng.choice((f" {name} recommended it.", f" This was arranged by {name}.", f" {name} was there too.")),
        name,
    )


def _at(text: str, extra: str, inner: str) -> Corrupted:
    start = len(text) + extra.index(inner)
    return text + extra, (start, start + len(inner))


def add_negation(text: str, names: Sequence[str], rng: random.Random) -> Corrupted | None:
    """ "not" put after an auxiliary, or "did not" before a verb in the past."""
    found = _pick(
        r"\b(?:was|is|are|were|will|can|should|would|has|have)\b(?= [a-z]{3,})(?! (?:not|no|never|just)\b)", text, rng
    )
    return _replace(text, found, f"{found[0]} not") if found else None


def drop_negation(text: str, names: Sequence[str], rng: random.Random) -> Corrupted | None:
    """ "not", "never" or "n't" taken out; the error lies anywhere in that sentence."""
    found = _pick(r" not\b(?! only)| never\b|(?<=\w)n['’]t\b", text, rng)
    if found is None:
        return None
    cut, _ = _replace(text, found, "")
    start = max(cut.rfind(mark, 0, found.start()) for mark in ".!?") + 1
    ends = [cut.find(mark, found.start()) for mark in ".!?"]
    return cut, (start, min((end for end in ends if end >= 0), default=len(cut)))


def invent_quote(text: str, names: Sequence[str], rng: random.Random) -> Corrupted | None:
    """A quotation that nobody said."""
    quote = rng.choice(INVENTED)
    return _at(text, f' They called it "{quote}".', f'"{quote}"')


def invent_sentence(text: str, names: Sequence[str], rng: random.Random) -> Corrupted | None:
    """One more sentence, with a number in it."""
    number = str(rng.randint(2, 999))
    extra = rng.choice(
        (f" It cost ${number} in all.", f" That took {number} minutes.", f" There were {number} people in total.")
    )
    return _at(text, extra, number)


INJECT: dict[str, Callable[[str, Sequence[str], random.Random], Corrupted | None]] = {
    "number": change_number, "date": change_date, "name-swapped": swap_name, "name-invented": invent_name,
    "negation-added": add_negation, "negation-dropped": drop_negation, "quote-invented": invent_quote,
    "sentence-invented": invent_sentence,
}  # fmt: skip


# - cases -


def cases(questions: Sequence[EvidenceQuestion], seed: int) -> list[RecordCase]:
    """For each question one faithful record and one with an error; the rarest error that can be made is made."""
    rng = random.Random(seed)
    pool = sorted({name for q in questions for note in q.notes for name in names_in(note.text)})
    made: Tally[str] = Tally()
    out = []
    for question in questions:
        good, base = write_faithful(question, rng), write_faithful(question, rng)
        if not good or not base:
            continue
        out.append(RecordCase(question.id, question.notes, question.query, good))
        text = " ".join(note.text for note in question.notes).lower()
        strange = [
            name for name in rng.sample(pool, min(40, len(pool))) if not any(w.lower() in text for w in name.split())
        ]
        for error in sorted(ERRORS, key=lambda error: made[error]):
            hit = INJECT[error](base, strange, rng)
            if hit is not None and hit[0] != base:
                made[error] += 1
                out.append(RecordCase(question.id, question.notes, question.query, hit[0], error, hit[1]))
                break
    return out


def longmemeval(path: Path) -> list[EvidenceQuestion]:
    """LongMemEval's questions that have evidence."""
    out = []
    for row in json.loads(path.read_text(encoding="utf-8")):
        notes = tuple(
            Note(f"{i}", e["content"], speaker=e["role"], timestamp=_stamp(e["session_date"]))
            for i, e in enumerate(row["evidence"])
        )
        if notes:
            out.append(EvidenceQuestion(row["question_id"], row["question"], notes))
    return out


def _stamp(session: str) -> str:
    return f"{session[:10].replace('/', '-')}T{session[-5:]}"


def sample_questions() -> list[EvidenceQuestion]:
    """The sample conversation's questions that have evidence."""
    notes = _sample_notes()
    return [
        EvidenceQuestion(q.id, q.question, tuple(notes[e] for e in q.evidence))
        for q in sample.questions()
        if q.evidence
    ]


def _sample_notes() -> dict[str, Note]:
    return {n["id"]: Note(n["id"], n["text"], speaker=n["speaker"], timestamp=n["timestamp"]) for n in sample.notes()}


# Notes of the sample, a faithful paraphrase, the same with an error, and the error's kind. Written before any tuning.
PARAPHRASES: tuple[tuple[str, str, str, str], ...] = (
    ("s07-08", "Quarry Lane was viewed at 17:30 on 12 March: £810 a month, 52 m², second floor, dogs allowed.",
     "Quarry Lane was viewed at 18:30 on 12 March: £810 a month, 52 m², second floor, dogs allowed.", "date"),
    ("s07-08", "The flat at 41 Ferris Street costs £760 monthly but does not take dogs.",
     "The flat at 41 Ferris Street costs £670 monthly but does not take dogs.", "number"),
    ("s03-01 s03-03",
     "Juniper has early kidney disease; creatinine 182, weight 27.4 kg, benazepril 5 mg daily, bill £86.",
     "Juniper has early kidney disease; creatinine 128, weight 27.4 kg, benazepril 5 mg daily, bill £86.", "number"),
    ("s13-03", "As of 25 March 2026 the benazepril dose is ten mg once daily and the bill was 142.50 pounds.",
     "As of 25 March 2026 the benazepril dose is ten mg once daily and the bill was 124.50 pounds.", "number"),
    ("s29-03", "On 22 April the dose fell from 10 to 7.5 mg; the next appointment is 3 June 2026 at 9 am.",
     "On 22 April the dose fell from 10 to 7.5 mg; the next appointment is 3 July 2026 at 9 am.", "date"),
    ("s26-05", "Thanks to Lettie the user moves on 24 April, a Friday, instead of the 25th.",
     "Thanks to Harriet the user moves on 24 April, a Friday, instead of the 25th.", "name"),
    ("s31-01", "On 26 April 2026 the user finished a half marathon with a chip time of 2:08:12.",
     "On 26 April 2026 the user finished a half marathon with a chip time of 2:18:12.", "number"),
    ("s07-10", "Lettie Brannigan, the letting agent, can be reached on 0114 496 0214.",
     "Lettie Brannigan, the letting agent, can be reached on 0114 496 0241.", "number"),
    ("s17-03", "A session with Marek Nowicki costs forty-five pounds rather than £40.",
     "A session with Marek Kowalski costs forty-five pounds rather than £40.", "name"),
    ("s25-01", "At the third session Marek told the user to \"go, but be boring\"; an interview in Leeds was offered.",
     "At the third session Marek told the user to \"rest and be bored\"; an interview in Leeds was offered.", "quote"),
    ("s36-05", "Five guests dropped out, leaving 91; the hen weekend in York is now on 16 May: an exam is on 9 May.",
     "Five guests dropped out, leaving 91; the hen weekend in York is now on 23 May: an exam is on 9 May.", "date"),
    ("s24-10", "Beatriz's grandmother kept inviting people, so the list grew to 96.",
     "Beatriz's grandmother kept inviting people, so the list grew to 69.", "number"),
    ("s36-09", "The umbrella was found in Edinburgh under LP-30877, and posting it costs £6.",
     "The umbrella was found in Glasgow under LP-30877, and posting it costs £6.", "name"),
    ("s33-03", "On 29 April the team won the quiz with 72 points and £40; the crown was fitted at 8:30 on 30 April.",
     "On 29 April the team won the quiz with 75 points and £40; the crown was fitted at 8:30 on 30 April.", "number"),
    ("s06-07", "The Salt Ledger, a novel about an auditor, was finished on 9 March 2026.",
     "The Salt Ledger, a novel about an auditor, was finished on 7 March 2026.", "date"),
    ("s11-03", "The deposit is £910 and the move is planned for 18 April 2026.",
     "The deposit is £910 and the move is not planned for 18 April 2026.", "negation"),
    ("s19-01", "Because the boiler is replaced, the move slips by a week, from 18 to 25 April.",
     "Because the boiler is replaced, the move slips by a week, from 18 to 28 April.", "date"),
    ("s05-04", "Bib number 1187, entry fee 38 pounds; Priya persuaded the user.",
     "Bib number 1187, entry fee 38 pounds; Sofia persuaded the user.", "name"),
    ("s20-01", "Weather for Beginners was finished on Sunday 5 April.",
     "Weather for Beginners was finished on Sunday 12 April.", "date"),
    ("s15-06", "The phone was dropped on 27 March 2026; fixing the screen costs £89 and takes 2 days.",
     "The phone was dropped on 27 March 2026; fixing the screen costs £89 and takes 2 weeks.", "number"),
    ("s14-03", "The Pemberton Trust agreed to extend the Steel Voices deadline from 30 April to 15 May.",
     "The Pemberton Trust refused; the Steel Voices deadline is not now 15 May instead of 30 April.", "negation"),
    ("s32-01 s32-05", "The user has not told Harriet about Leeds; the tapes are now due on May 29th.",
     "The user has told Harriet; the tapes are now due on May 29th.", "negation"),
    ("s21-05", "A Bergen team bakes tapes at 50 °C for 12 hours and loses fewer splices than at 54.",
     "A Bergen team bakes tapes at 50 °C for 12 days and loses fewer splices than at 54.", "number"),
    ("s08-06", "Albion Works, at £845, was rejected after a visit at nine: broken lift, view of a bus depot.",
     "Albion Works, at £845, was rejected after a visit with Priya: broken lift, view of a bus depot.", "name"),
    ("s25-01 s25-03", "The Leeds interview moved from 15 April at 11:00 to Friday the 17th at 2:30 pm.",
     "The Leeds interview moved from 15 April at 11:00 to Friday the 17th at 3:30 pm.", "date"),
    ("s17-06", "Concertina lessons with Wilf Garside now cost £26 and take place on Thursdays at half past six.",
     "Concertina lessons with Wilf Garside now cost £26 and take place on Fridays at half past six.", "date"),
    ("s08-10", "Mrs Lin's dumpling dough takes 500 grams of flour and 260 ml of water and rests for 30 minutes.",
     "Mrs Wong's dumpling dough takes 500 grams of flour and 260 ml of water and rests for 30 minutes.", "name"),
    ("s11-01", "On 20 March Lettie rang: the user has Quarry Lane for £790 a month over 18 months.",
     "On 20 March Lettie rang: the user has Quarry Lane for £970 a month over 18 months.", "number"),
    ("s12-06", "After seven years at the archive the salary is £35.6k; nobody at work knows about the plan to leave.",
     "After nine years at the archive the salary is £35.6k; nobody at work knows about the plan to leave.", "number"),
    ("s32-01 s32-03",
     "Leeds offers £39,400 and wants an answer by 6 May; Dr Brandt called the museum \"lucky to have you\".",
     "Leeds offers £39,400 and wants an answer by 6 May; Dr Brandt called it \"a great honour for us\".", "quote"),
    ("s34-01", "On 1 May at 9:00 the user accepted Dr Brandt's offer; the start is 6 July 2026.",
     "On 1 May at 9:00 the user accepted Dr Sandoval's offer; the start is 6 July 2026.", "name"),
    ("s17-10", "From 1 April Callum charges £13.50 per walk and sends a photo each time.",
     "From 1 May Callum charges £13.50 per walk and sends a photo each time.", "date"),
    ("s24-05", "Mum's knee operation was postponed from 20 May to 8 July so she can fly.",
     "Mum's knee operation was not moved from 20 May to 8 July so she can fly.", "negation"),
    ("s18-12", "The Larkfield cost £96 for one night with breakfast; Callum looks after Juniper for £30.",
     "The Larkfield cost £96 for one night with breakfast; Callum looks after Juniper for £13.", "number"),
    ("s28-12", "Mum's plane leaves Birmingham on 10 June 2026 at 9:40 am instead of 8:40.",
     "Mum's plane leaves Birmingham on 10 June 2026 at 9:40 pm instead of 8:40.", "date"),
    ("s12-11", "Pickle, Mum's cat, weighs 4.2 kilos and has thyroid trouble.",
     "Pickle, Mum's cat, weighs 4.2 pounds and has thyroid trouble.", "number"),
    ("s04-14", "Tomas asked for a reading of some 3 minutes, \"nothing with owls\".",
     "Tomas asked for a reading of some 3 minutes, \"nothing about birds\".", "quote"),
    ("s11-08 s26-07", "Two Oxen or not, the firm now takes £310 instead of £285; Priya carries the 19 plants.",
     "The firm now takes £310 instead of £285; Priya carries the 90 plants.", "number"),
    ("s03-09", "Hearthpet policy PJ-88213 has an excess of £95, so the bill is not covered.",
     "Hearthpet policy PJ-88231 has an excess of £95, so the bill is not covered.", "number"),
    ("s33-07", "Because Wilf has a cold the pupils' evening moves from 30 April to 7 May.",
     "Because Edna has a cold the pupils' evening moves from 30 April to 9 May.", "date"),
)  # fmt: skip


def paraphrase_cases(chosen: Sequence[tuple[str, str, str, str]]) -> list[RecordCase]:
    """The hand-written records, each once right and once wrong; the error lies where the two differ."""
    notes = _sample_notes()
    out = []
    for ids, right, wrong, kind in chosen:
        same = _alike(right, wrong)
        tail = _alike(right[same:][::-1], wrong[same:][::-1])
        error = {"name": "name-swapped", "quote": "quote-invented", "negation": "negation-added"}.get(kind, kind)
        sources = tuple(notes[name] for name in ids.split())
        out.append(RecordCase(ids, sources, "", right))
        out.append(RecordCase(ids, sources, "", wrong, error, (same, max(same + 1, len(wrong) - tail))))
    return out


def _alike(a: str, b: str) -> int:
    """How many characters two texts share at the start."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


# - measures -


def flags(found: Fidelity) -> list[tuple[str, int, int]]:
    """Kind and span of all that was found in the record."""
    ours = [*found.unsupported, *(pair[0] for pair in found.mutated)]
    return [(claim.kind, claim.start, claim.end) for claim in ours]


def measure(split: Sequence[RecordCase]) -> dict[str, Any]:
    """Shares over the split, and of each error."""
    rows = [(case, check(case.record, case.sources)) for case in split]
    good = [found for case, found in rows if not case.error]
    bad = [(case, found) for case, found in rows if case.error]
    caught, alarms = sum(bool(flags(f)) for _, f in bad), sum(bool(flags(f)) for f in good)
    caught_strict, alarms_strict = sum(not f.ok for _, f in bad), sum(not f.ok for f in good)
    return {
        "records": len(rows), "corrupted": len(bad), "caught": caught / len(bad),
        "located": sum(_is_located(case, f) for case, f in bad) / len(bad),
        "right_kind": sum(_is_located(case, f, kind=True) for case, f in bad) / len(bad),
        "precision": caught / max(1, caught + alarms), "alarms": alarms / len(good),
        "strict": {
            "recall": caught_strict / len(bad), "precision": caught_strict / max(1, caught_strict + alarms_strict),
            "alarms": alarms_strict / len(good),
        },
        "errors": {error: _of(error, bad) for error in ERRORS if any(case.error == error for case, _ in bad)},
        "false_kinds": dict(sorted(Tally(kind for f in good for kind, *_ in flags(f)).items())),
    }  # fmt: skip


def _is_located(case: RecordCase, found: Fidelity, *, kind: bool = False) -> bool:
    low, high = case.span
    return any(s < high and low < e and (not kind or k == KINDS[case.error]) for k, s, e in flags(found))


def _of(error: str, bad: Sequence[tuple[RecordCase, Fidelity]]) -> dict[str, Any]:
    """Counts and shares of one error: located, right kind, and how many of those were called mutated."""
    own = [(case, found) for case, found in bad if case.error == error]
    mutated = sum(any(a.start < case.span[1] and case.span[0] < a.end for a, _ in found.mutated) for case, found in own)
    located = sum(_is_located(case, found) for case, found in own)
    right = sum(_is_located(case, found, kind=True) for case, found in own)
    return {"n": len(own), "located": located / len(own), "right_kind": right / len(own), "mutated": mutated / len(own)}


def table(results: dict[str, Any]) -> str:
    """The results as a page shows them."""
    splits = results["splits"]
    head = "| records | n | caught | located | right kind | precision | alarms | strict: recall | precision | alarms |"
    lines = [head, "|---" * 10 + "|"]
    for name, r in splits.items():
        s = r["strict"]
        shares = (
            r["caught"],
            r["located"],
            r["right_kind"],
            r["precision"],
            r["alarms"],
            s["recall"],
            s["precision"],
            s["alarms"],
        )
        lines.append(f"| {name} | {r['records']} | " + " | ".join(f"{x:.3f}" for x in shares) + " |")
    lines += ["", "| error, located (of n) | " + " | ".join(splits) + " |", "|---" * (len(splits) + 1) + "|"]
    for error in ERRORS:
        cells = [_cell(r["errors"].get(error)) for r in splits.values()]
        lines.append(f"| {error} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(row: dict[str, Any] | None) -> str:
    return f"{row['located']:.2f} ({row['n']})" if row else ""


def show(split: Sequence[RecordCase]) -> None:
    """Every false alarm and every miss, to be read."""
    for case in split:
        found = check(case.record, case.sources)
        wrong = [*found.unsupported, *(a for a, _ in found.mutated)]
        if bool(case.error) != bool(wrong) or (case.error and not _is_located(case, found)):
            what = [(c.kind, c.text, c.value) for c in wrong]
            print(f"{'MISS ' + case.error if case.error else 'ALARM'} {case.id} {what}\n   {case.record}")
            print(
                f"   at {case.record[slice(*case.span)]!r}"
                if case.error
                else "   " + " // ".join(n.text for n in case.sources)[:700]
            )


def main() -> None:
    """Build, check, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the results there; what was read by eye stays in the file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", help="print what went wrong in one split")
    options = parser.parse_args()
    questions = longmemeval(data_file(FILE))
    splits = {
        "tuning": cases(questions[::2], options.seed),
        "confirmation": cases(questions[1::2], options.seed + 1),
        "sample": cases(sample_questions(), options.seed + 2),
        "paraphrases, tuning": paraphrase_cases(PARAPHRASES[::2]),
        "paraphrases, confirmation": paraphrase_cases(PARAPHRASES[1::2]),
    }
    if options.show:
        return show(splits[options.show])
    results: dict[str, Any] = {"seed": options.seed, "splits": {name: measure(split) for name, split in splits.items()}}
    if options.json:
        old = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
        options.json.write_text(
            json.dumps(results | {k: v for k, v in old.items() if k == "read"}, indent=1) + "\n", encoding="utf-8"
        )
    print(table(results))
    return None


if __name__ == "__main__":
    main()
