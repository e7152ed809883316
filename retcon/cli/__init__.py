"""The command line: parses, calls the library, prints. One module per concern.

run.py      the group: every error becomes one line and an exit code
options.py  the options that verbs share; text from standard input
verbs.py    the verbs
study.py    label: questions into outcomes
learn.py    fit, calibrate, crossfit
bench.py    bench and advise: from questions to a report, a router and advice
report.py   outcomes into tables, figures and a page
mechanism.py  the paper's model of why, drawn
serve.py    serve and keys: memory over HTTP, and who may use it
mcp.py      mcp: memory as tools for agents
show.py     results for people, and as JSON
doctor.py   what is configured and what is missing
story.py    how the demo is told
"""

from retcon.cli.verbs import app, main

__all__ = ["app", "main"]
