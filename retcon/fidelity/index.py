"""What a changed claim was made from: the sources' claims by what stands around them, and their negations."""

from __future__ import annotations

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
    def _by_trait(self) -> dict[tuple[str, str], list[Mention]]:
        out: dict[tuple[str, str], list[Mention]] = {}
        for text in self.texts:
            for mention in text.firm:
                for key in (*text.near(mention), *mention.traits):
                    held = out.setdefault((mention.claim.kind, key), [])
                    if len(held) < _MOST:
                        held.append(mention)
        return out

    def nearest(self, mention: Mention, record: Reading) -> Mention | None:
        """The source claim of the same kind that shares most with this one; None where none shares enough."""
        scores: dict[int, tuple[int, Mention]] = {}
        for key in (*record.near(mention), *mention.traits):
            for other in self._by_trait.get((mention.claim.kind, key), ()):
                scores[id(other)] = (scores.get(id(other), (0, other))[0] + _WORTH.get(key.partition(":")[0], 1), other)
        best = max(scores.values(), key=lambda pair: pair[0], default=None)
        return best[1] if best and best[0] >= SIMILAR else None

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

    def affirmed(self, denial: Denial, record: Reading) -> Claim | None:
        """The source's own statement of what the record denies."""
        for text, token in self._said.get(denial.stem, ()):
            if self._alike(record, denial.sentence, text, token.sentence) >= SIMILAR:
                return text.claim(NEGATION, denial.stem, token.start, token.end)
        return None

    def dropped(self, record: Reading) -> list[tuple[Claim, Claim]]:
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
