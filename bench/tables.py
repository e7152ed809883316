"""Tables in README and docs, written from bench/results: no figure there is typed by hand.

python -m bench.tables            rewrites every block between `<!-- table: NAME -->` and `<!-- end -->`
python -m bench.tables --check    says whether all of them are up to date
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import ROOT
from bench.retrieval import table as retrieval_table

RESULTS = ROOT / "bench" / "results"
_BLOCK = re.compile(r"(<!-- table: ([a-z-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def _results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


TABLES: dict[str, Callable[[], str]] = {
    "retrieval": lambda: retrieval_table(_results("retrieval")),
}


def pages() -> list[Path]:
    """Every page that may hold a table."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def rewritten(text: str) -> str:
    """The page with each block made anew."""
    return _BLOCK.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[4]}", text)


def main() -> None:
    """Rewrite the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 where a table is out of date")
    options = parser.parse_args()
    stale = []
    for page in pages():
        old = page.read_text(encoding="utf-8")
        if (new := rewritten(old)) != old:
            stale.append(page.name)
            if not options.check:
                page.write_text(new, encoding="utf-8")
    print(f"{'out of date' if options.check else 'rewritten'}: {', '.join(stale) or 'nothing'}")
    sys.exit(1 if options.check and stale else 0)


if __name__ == "__main__":
    main()
