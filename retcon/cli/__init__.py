"""The command line: parses, calls the library, prints. One module per concern.

run.py      the group: every error becomes one line and an exit code
options.py  the options that verbs share; text from standard input
verbs.py    the verbs
serve.py    serve and keys: memory over HTTP, and who may use it
mcp.py      mcp: memory as tools for agents
importing.py  import: notes from other memories and chat exports
show.py     results for people, and as JSON
doctor.py   what is configured and what is missing
story.py    how the demo is told

Other packages add verbs by an entry point of the group `retcon.verbs`; the laboratory does (retcon/lab/cli).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retcon.cli.verbs import app, main

__all__ = ["app", "main"]


def __getattr__(name: str) -> Any:
    if name not in __all__:  # loaded at first use: verbs of other packages import the options from here
        raise AttributeError(f"module 'retcon.cli' has no attribute {name!r}")
    from retcon.cli import verbs

    return getattr(verbs, name)
