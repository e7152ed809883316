"""The command line: parses, calls the library, prints. One module per concern.

run.py      the group: every error becomes one line and an exit code
options.py  the options that verbs share; text from standard input
verbs.py    the verbs
serve.py    serve and keys: memory over HTTP, and who may use it
mcp.py      mcp: memory as tools for agents
show.py     results for people, and as JSON
doctor.py   what is configured and what is missing
story.py    how the demo is told

Other packages add verbs by an entry point of the group `retcon.verbs`; the laboratory does (retcon/lab/cli).
"""

from retcon.cli.verbs import app, main

__all__ = ["app", "main"]
