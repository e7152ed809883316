"""What a generated record says that its notes do not: numbers, dates, names, quotes and negations. No model is asked.

    record -> claims -> each looked up among the claims of the sources -> supported | mutated | unsupported
    sources -> claims in sentences that share a telling word with the query -> looked up in the record -> missing

Both sides are read by the same reader, so a text always supports itself. A claim means one or more keys ("5 pm" is
T17:00, "5/9/2026" is the ninth of May or the fifth of September); a source claim supports its own keys and everything
wider ("9 May 2026" supports "May 2026", "2026" and "Saturday"), and words like "yesterday" count from the note's date.
The query lends its names and words, not its numbers and dates. Nothing is calculated: a sum, a difference or a count
that no note states is unsupported.

A mention is firm or weak. Weak ones ("one of them", a capital that only opens a sentence) support but are not claims.
"""

from __future__ import annotations

from collections.abc import Sequence

from retcon import deadline
from retcon.fidelity.index import Index
from retcon.fidelity.reading import Reading
from retcon.fidelity.support import Support
from retcon.note import Claim, Fidelity, Note
from retcon.words import query_terms


def check(record: str, sources: Sequence[Note], *, query: str = "") -> Fidelity:
    """What the record claims that no source supports, what it changed and, given a query, what it left out."""
    ours = Reading(record)
    theirs = [Reading(note.text, note=note) for note in sources]
    support, index = Support(theirs, asked=query), Index(theirs)
    supported, unsupported = 0, []
    mutated: list[tuple[Claim, Claim]] = []
    for mention in ours.firm:
        deadline.check()
        if support.holds(mention):
            supported += 1
        elif (counterpart := index.find_nearest(mention, ours)) is not None:
            mutated.append((mention.claim, counterpart.claim))
        else:
            unsupported.append(mention.claim)
    for denial in ours.denials:
        deadline.check()
        if support.denies(denial):
            supported += 1
        elif (affirmed := index.find_affirmation(denial, ours)) is not None:
            mutated.append((denial.claim, affirmed))
        else:
            unsupported.append(denial.claim)
    mutated += index.find_dropped_denials(ours)
    missing = _find_missing(theirs, Support([ours]), query, {theirs for _, theirs in mutated}) if query else ()
    order = sorted(unsupported, key=lambda claim: claim.start)
    return Fidelity(tuple(order), missing, tuple(sorted(mutated, key=lambda pair: pair[0].start)), supported)


def _find_missing(theirs: Sequence[Reading], record: Support, query: str, changed: set[Claim]) -> tuple[Claim, ...]:
    """Claims of the sentences that share a telling word with the query, which the record does not hold; each once."""
    terms = set(query_terms(query))
    out: dict[tuple[str, str], Claim] = {}
    for text in theirs:
        deadline.check()
        bears = [not terms.isdisjoint(stems) for stems in text.stems]
        lost = [m.claim for m in text.firm if bears[m.sentence] and not record.holds(m)]
        lost += [d.claim for d in text.denials if bears[d.sentence] and not record.denies(d)]
        for claim in sorted(lost, key=lambda claim: claim.start):
            if claim not in changed:
                out.setdefault((claim.kind, claim.value), claim)
    return tuple(out.values())
