"""Every verb of the laboratory, with examples of it."""

from retcon.lab.cli import advise, bench, label, learn, mechanism, report

VERBS = (
    (label.label, label.EXAMPLES),
    (learn.fit, learn.FIT),
    (learn.calibrate, learn.CALIBRATE),
    (learn.crossfit, learn.CROSSFIT),
    (bench.bench, bench.EXAMPLES),
    (report.report, report.EXAMPLES),
    (advise.advise, advise.EXAMPLES),
    (mechanism.mechanism, mechanism.EXAMPLES),
)
