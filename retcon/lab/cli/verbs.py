"""Every verb of the laboratory, with examples of it."""

from retcon.lab.cli.bench import ADVISE, BENCH, advise, bench
from retcon.lab.cli.label import LABEL, label
from retcon.lab.cli.learn import CALIBRATE, CROSSFIT, FIT, calibrate, crossfit, fit
from retcon.lab.cli.mechanism import EXAMPLES as MECHANISM
from retcon.lab.cli.mechanism import mechanism
from retcon.lab.cli.report import EXAMPLES as REPORT
from retcon.lab.cli.report import report

VERBS = (
    (label, LABEL), (fit, FIT), (calibrate, CALIBRATE), (crossfit, CROSSFIT), (bench, BENCH), (report, REPORT),
    (advise, ADVISE), (mechanism, MECHANISM),
)  # fmt: skip
