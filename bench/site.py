"""What mkdocs does beside rendering: files outside docs/ that a page links to become part of the site.

In the repository `[prereg](../bench/prereg.md)` leads to that file. The site has no such folder, so it takes a copy
along, tree/bench/prereg.md.txt, and the link leads there. mkdocs finds the two functions by their names.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

from mkdocs.structure.files import File, Files

from bench import ROOT

_LINK = re.compile(r"\]\(((?:\.\./)+[^)#:\s]+)(#[^)]*)?\)")
_SHOWN_AS_IS = (".html", ".svg", ".png")


def on_files(files: Files, *, config: Any) -> Files:
    """The site's files, and a copy of each one outside that a page links to."""
    for page in files.documentation_pages():
        for link, _ in _LINK.findall(page.content_string):
            if (target := _outside(page.src_uri, link)) and not files.get_file_from_path(_copied(target)):
                files.append(File.generated(config, _copied(target), abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """The page, its links out of docs/ led to the copies."""

    def lead(found: re.Match[str]) -> str:
        target = _outside(page.file.src_uri, found[1])
        if target is None:
            return found[0]
        return f"]({posixpath.relpath(_copied(target), posixpath.dirname(page.file.src_uri) or '.')})"

    return _LINK.sub(lead, markdown)


def _outside(page: str, link: str) -> str | None:
    """The file in the tree that a link means, None for one inside docs/."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if path.startswith("docs/") else path


def _copied(target: str) -> str:
    """Where the copy lies; source text gets an ending that a browser shows."""
    return f"tree/{target}" + ("" if target.endswith(_SHOWN_AS_IS) else ".txt")
