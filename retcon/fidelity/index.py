"""What a changed claim was made from: the sources' claims by what stands around them, and their negations."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from functools import cached_property

from retcon.fidelity.negations import denying_clauses
from retcon.fidelity.reading import Reading
from retcon.fidelity.text import NEGATION, Denial, Mention, Token
from retcon.note import Claim

SIMILAR = 2  # what a counterpart must share with a claim to be what it was made from
_MOST = 40  # claims kept under one index key, so that a word repeated a million times costs no square
_WORTH = {"title": 2, "name": 2, "digits": 2, "value": 2, "of": 2}  # other traits and words around: 1 each


class Index:
    """The claims of the sources by what stands around them, to find what a changed claim was made from."""

    def __init__(self, texts: Sequence[Reading]) -> None:
        self.texts = texts
        self._shared: dict[tuple[int, int, int, int], int] = {}

    @cached_property
    def _by_trait(self) -> dict[tuple[str, str], list[int]]:
        """Places of claims among `_firm`."""
        out: dict[tuple[str, str], list[int]] = {}
        for place, (text, mention) in enumerate(self._firm):
            for key in (*text.near(mention), *mention.traits):
                held = out.setdefault((mention.claim.kind, key), [])
                if len(held) < _MOST:
                    held.append(place)
        return out

    @cached_property
    def _firm(self) -> list[tuple[Reading, Mention]]:
        return [(text, mention) for text in self.texts for mention in text.firm]

    def find_nearest(self, mention: Mention, record: Reading) -> Mention | None:
        """The source claim of the same kind that shares most with this one, the first of several; None where none
        shares enough."""
        scores: Tally[int] = Tally()
        for key in (*record.near(mention), *mention.traits):
            for place in self._by_trait.get((mention.claim.kind, key), ()):
                scores[place] += _WORTH.get(key.partition(":")[0], 1)
        best = min(scores, key=lambda place: (-scores[place], place), default=None)
        return self._firm[best][1] if best is not None and scores[best] >= SIMILAR else None

    @cached_property
    def _said(self) -> dict[str, list[tuple[Reading, Token]]]:
        """Where a telling stem stands in a sentence that denies nothing."""
        out: dict[str, list[tuple[Reading, Token]]] = {}
        for text in self.texts:
            cues = denying_clauses(text)
            for token in text.tokens:
                held = out.setdefault(text.stem[token.word], [])
                if token.clause not in cues and len(held) < _MOST:
                    held.append((text, token))
        return out

    def _alike(self, record: Reading, ours: int, text: Reading, theirs: int) -> int:
        """How many telling stems two sentences share; counted once for each pair, however often they meet."""
        pair = (id(record), ours, id(text), theirs)
        if pair not in self._shared:
            self._shared[pair] = len(record.stems[ours] & text.stems[theirs])
        return self._shared[pair]

    def find_affirmation(self, denial: Denial, record: Reading) -> Claim | None:
        """The source's own statement of what the record denies."""
        for text, token in self._said.get(denial.stem, ()):
            if self._alike(record, denial.sentence, text, token.sentence) >= SIMILAR:
                return text.claim(NEGATION, denial.stem, token.start, token.end)
        return None

    def find_dropped_denials(self, record: Reading) -> list[tuple[Claim, Claim]]:
        """Statements of the record that every source sentence with the same word denies."""
        cues = denying_clauses(record)
        denied: dict[str, list[tuple[Reading, Denial]]] = {}
        for text in self.texts:
            for denial in text.denials:
                denied.setdefault(denial.stem, []).append((text, denial))
        out = []
        for token in record.tokens:
            stem = record.stem[token.word]
            if token.clause in cues or stem not in denied or self._said.get(stem):
                continue
            for text, denial in denied[stem][:_MOST]:
                if self._alike(record, token.sentence, text, denial.sentence) > SIMILAR:
                    out.append((record.claim(NEGATION, stem, token.start, token.end), denial.claim))
                    break
        return out
