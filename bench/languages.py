"""What a memory in its own language finds, and what the same notes give when they are read as English.

    apt-get download gnome-user-docs && dpkg -x gnome-user-docs_*.deb gnome
    python -m bench.languages gnome/usr/share/help --out bench/results/languages.json

GNOME's help is translated by people into many languages. Every paragraph of a page is a note; the page's one-sentence
description, which stands in none of them, is a query. Found is what is of that page. What a translation left in English
is left out. This is prose of a manual, no chat: it shows what reading words right is worth, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from bench import grid, keep, out_parser
from retcon import Memory
from retcon.lab.report.cells import change
from retcon.lab.stats import interval, resample

FOLDERS = {
    "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "es": "spanish", "fi": "finnish",
    "fr": "french", "hu": "hungarian", "id": "indonesian", "it": "italian", "ja": "japanese", "ko": "korean",
    "nl": "dutch", "pl": "polish", "pt_BR": "portuguese", "ru": "russian", "sv": "swedish", "zh_CN": "chinese",
}  # fmt: skip
OTHERWISE = ("english", "none")
SHORTEST = 20  # characters of a paragraph
SEED = 16
_MALLARD = "{http://projectmallard.org/1.0/}"


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the help: its description, and its paragraphs."""

    name: str
    about: str
    paragraphs: tuple[str, ...]


def read_pages(folder: Path) -> Iterator[Page]:
    """The pages that have a description and paragraphs."""
    for path in sorted((folder / "gnome-help").glob("*.page")):
        root = ElementTree.parse(path).getroot()
        about = _flat(root.find(f"{_MALLARD}info/{_MALLARD}desc"))
        texts = tuple(text for each in root.iter(f"{_MALLARD}p") if len(text := _flat(each)) > SHORTEST)
        if about and texts:
            yield Page(path.stem, about, texts)


def _flat(element: ElementTree.Element | None) -> str:
    return "" if element is None else " ".join("".join(element.itertext()).split())


def translated(pages: Sequence[Page], english: Sequence[Page]) -> list[Page]:
    """The pages without what is as in English."""
    known = {text for page in english for text in (page.about, *page.paragraphs)}
    kept = (Page(page.name, page.about, tuple(set(page.paragraphs) - known)) for page in pages)
    return [page for page in kept if page.paragraphs and page.about not in known]


def ranks(pages: Sequence[Page], name: str) -> list[int]:
    """For each page the rank of the first note of it that its description finds; 0 where none is among the best 20."""
    lines = (
        json.dumps({"id": f"{page.name}:{i}", "text": text}, ensure_ascii=False)
        for page in pages
        for i, text in enumerate(sorted(page.paragraphs))
    )
    out = []
    with Memory(":memory:", language=name) as memory:
        memory.load(lines)
        for page in pages:
            found = [hit.id.rpartition(":")[0] for hit in memory.search(page.about, top_k=20)]
            out.append(found.index(page.name) + 1 if page.name in found else 0)
    return out


def measure(folder: Path) -> list[dict[str, Any]]:
    """A row for each language."""
    english, rows = list(read_pages(folder / "C")), []
    for code, name in FOLDERS.items():
        pages = translated(list(read_pages(folder / code)), english)
        found = {how: np.array(ranks(pages, name if how == "own" else how)) for how in ("own", *OTHERWISE)}
        sizes = {"pages": len(pages), "notes": sum(len(page.paragraphs) for page in pages)}
        rows.append({"language": name, **sizes, **{f"at {k}": _compare(found, k) for k in (1, 5)}})
        print(json.dumps(rows[-1]), flush=True)
    return rows


def _compare(found: Mapping[str, NDArray[np.int_]], k: int) -> dict[str, Any]:
    """Shares of pages found among the best k, and how much more than when read as English, with an interval."""
    hits = {how: ((rank > 0) & (rank <= k)).astype(float) for how, rank in found.items()}
    gain = interval(hits["own"] - hits["english"], resample(len(hits["own"]), seed=SEED))
    shares = {how: round(float(values.mean()), 4) for how, values in hits.items()}
    return shares | {"gain": [round(value, 4) for value in (gain.mean, gain.low, gain.high)]}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """What is found, in the language and otherwise, and how much more, or less, than when read as English."""
    head = ["language", "pages", "in the best 5", "as English", "as they are", "more in the best 5", "more at rank 1"]
    ordered = sorted(rows, key=lambda row: -row["at 5"]["gain"][0])
    return grid(head, map(_cells, ordered))


def _cells(row: Mapping[str, Any]) -> list[str]:
    shares = [f"{row['at 5'][how]:.3f}" for how in ("own", *OTHERWISE)]
    return [row["language"], str(row["pages"]), *shares, *(change(*row[f"at {k}"]["gain"]) for k in (5, 1))]


def main() -> None:
    parser = out_parser(__doc__)
    parser.add_argument("folder", type=Path, help="the folder that holds de, es, ...")
    given = parser.parse_args()
    rows = measure(given.folder)
    print(table(rows))
    keep(rows, given.out)


if __name__ == "__main__":
    main()
