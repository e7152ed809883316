"""What a set of texts supports: a claim of another text is looked up here by its keys, its words or its stem."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from itertools import pairwise

from retcon.fidelity.days import triple_of, wider_keys
from retcon.fidelity.negations import denying_clauses
from retcon.fidelity.reading import Reading
from retcon.fidelity.text import DATE, NAME, NUMBER, TOKEN, Denial, Mention, Text, bare
from retcon.note import Note
from retcon.words import stem_words

_TIME = re.compile(r"[T ](\d\d:\d\d)")  # of a timestamp


class Support:
    """All that a set of texts supports."""

    def __init__(self, texts: Sequence[Reading], *, asked: str = "") -> None:
        self.words: set[str] = set()
        self.joined: set[str] = set()
        self.initials: set[str] = set()
        self.acronyms: set[str] = set()
        self.runs: set[str] = set()
        self.units: dict[str, set[str]] = {}
        self.keys: set[str] = set()
        self.stems: set[str] = set()
        self.denied: set[str] = set()
        self._add_words(Text(asked))  # a name or quotation of the question's own is no invention
        for text in texts:
            self._add(text)

    def _add_words(self, text: Text) -> None:
        words = [token.word for token in text.tokens]
        self.words.update(words)
        self.joined.update(a + b for a, b in pairwise(words))
        self.runs.update(words, map(" ".join, pairwise(words)))
        self.runs.update(map(" ".join, zip(words, words[1:], words[2:], strict=False)))

    def _add(self, text: Reading) -> None:
        self._add_words(text)
        self.stems.update(text.stem.values())
        self.acronyms.update(token.word for token in text.tokens if len(token.text) > 1 and token.text.isupper())
        for mention in text.mentions:
            if mention.claim.kind == NUMBER:
                for key in mention.keys:
                    self.units.setdefault(key, set()).add(mention.unit)
            if mention.claim.kind == NAME:
                self.initials.add("".join(word[0] for word in mention.claim.value.split()))
            self.keys |= mention.wider
            if mention.claim.kind == DATE:
                self.keys |= mention.keys
        cues = denying_clauses(text)
        self.denied.update(text.stem[token.word] for token in text.tokens if token.clause in cues)
        self._add_note(text.note, text.day)

    def _add_note(self, note: Note | None, day: date | None) -> None:
        """What a note says beside its words: who spoke, and when."""
        if note is None:
            return
        for found in TOKEN.finditer(note.speaker or ""):
            self.words.add(bare(found.group()))
        if day is not None:
            self.keys |= {*wider_keys(triple_of(day)), f"day:{day.day}"}
            self.keys |= {f"T{clock}" for clock in _TIME.findall((note.timestamp or "")[10:16])}

    def holds(self, mention: Mention) -> bool:
        """Whether a claim of another text is supported here."""
        kind = mention.claim.kind
        if kind == NUMBER:
            return any(self._number(key, mention.unit) for key in mention.keys)
        if kind == DATE:
            return not self.keys.isdisjoint(mention.keys) or self._bare_date(mention)
        if kind == NAME:
            return self._name(mention.claim.value.split()) or (mention.cut and self._begun(mention.claim.value))
        return mention.keys <= self.runs

    def _number(self, key: str, unit: str) -> bool:
        """The number stands here, bare or of the same unit: 20 gallons support neither 20 miles nor 20 tanks."""
        units = self.units.get(key, ())
        if key.isalpha():  # "iv" for Ⅳ
            return key in self.words
        return key in self.keys or unit in units or "" in units or (unit == "" and bool(units))

    def _bare_date(self, mention: Mention) -> bool:
        """A year said as a number, or an hour without its half of the day."""
        if mention.claim.value in self.units:
            return True
        return any(key[5:] in self.units for key in mention.wider if key.startswith("hour:"))

    def _begun(self, value: str) -> bool:
        """The name's last word is the beginning of one that stands here: the record was cut off in it."""
        *words, last = value.split()
        return len(last) > 1 and self._name(words) and any(word.startswith(last) for word in self.words)

    def _name(self, words: Sequence[str]) -> bool:
        unknown = [word for word in words if word not in self.words and not self._variant(word)]
        return not unknown or "".join(words) in self.words or "".join(word[0] for word in words) in self.acronyms

    def _variant(self, word: str) -> bool:
        """Another form of a word that stands here: joined, a plural, initials, the same stem."""
        if word in self.joined or word in self.initials or word.rstrip("s") in self.words or word + "s" in self.words:
            return True
        return stem_words([word])[0] in self.stems

    def denies(self, denial: Denial) -> bool:
        """Whether a sentence here that holds the same word denies something."""
        return denial.stem in self.denied
