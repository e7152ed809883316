"""The laboratory's verbs. The command line finds them by their entry point in the group `retcon.verbs`.

label.py      questions into outcomes
learn.py      fit, calibrate, crossfit: outcomes into routers and honest estimates
bench.py      bench and advise: from questions to a report, a router and advice
report.py     outcomes into tables, figures and a page
mechanism.py  the paper's model of why, drawn
verbs.py      all of them together
"""
