"""The laboratory's verbs. The command line finds them by their entry point in the group `retcon.verbs`.

label.py      questions into outcomes
learn.py      fit, calibrate, crossfit: outcomes into routers and honest estimates
bench.py      from questions to a report and a router
advise.py     which action and budget suit your own questions
report.py     outcomes into tables, figures and a page
mechanism.py  the paper's model of why, as a table or drawn
verbs.py      all of them together
options.py    the options that they share
study.py      what label, bench and advise share: questions, cells, models
tell.py       results for people, and as JSON
"""
