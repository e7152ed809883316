"""Counts and times of the service, as Prometheus text. Labels are routes and words of our own, never of a caller.

Each process of a service counts for itself; what it counted travels as plain values, and one of them adds all up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
HELP = {
    "retcon_requests_total": ("counter", "Requests answered, by route, method and status."),
    "retcon_refused_total": ("counter", "Requests answered with an error, and connections ended early, by reason."),
    "retcon_in_flight": ("gauge", "Requests being worked on or waiting."),
    "retcon_incoming_bytes": ("gauge", "Bytes of requests that are still coming in, 16 KiB each at least."),
    "retcon_queued": ("gauge", "Calls that wait for a thread, by kind of thread."),
    "retcon_working": ("gauge", "Threads at work, by kind of thread."),
    "retcon_notes_added_total": ("counter", "Notes that were written."),
    "retcon_notes_deleted_total": ("counter", "Notes that were deleted."),
    "retcon_recalls_total": ("counter", "Recalls, by the action that wrote the text."),
    "retcon_recalled_tokens_total": ("counter", "Tokens of recalled text."),
    "retcon_model_calls_total": ("counter", "Calls of the model."),
    "retcon_request_seconds": ("histogram", "Seconds from the request's first byte to the answer's last, by route."),
}
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Everything that is counted. One thread counts."""

    def __init__(self) -> None:
        self._watched: dict[str, Callable[[], Mapping[Labels, int]]] = {}
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._times: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def count(self, name: str, by: int = 1, /, **labels: str) -> None:
        """Add to a counter."""
        self._counts[name, tuple(labels.items())] += by

    def watch(self, name: str, look: Callable[[], Mapping[Labels, int]]) -> None:
        """Ask there for the values of a gauge, by their labels."""
        self._watched[name] = look

    def took(self, route: str, seconds: float) -> None:
        """Add a request to the histogram of its route."""
        place = next((i for i, bound in enumerate(BOUNDS) if seconds <= bound), len(BOUNDS))
        self._times[route][place] += 1
        self._seconds[route] += seconds

    def text(self) -> str:
        """All of it in Prometheus' text format."""
        return "\n".join(self._lines()) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON values."""
        return {
            "counts": [[name, labels, value] for (name, labels), value in self._counts.items()],
            "gauges": [[name, labels, value] for name in self._watched for labels, value in self._look(name).items()],
            "times": dict(self._times),
            "seconds": dict(self._seconds),
        }

    @classmethod
    def sum(cls, counted: Iterable[dict[str, Any]]) -> Metrics:
        """What several processes counted, as if one had."""
        whole, gauges = cls(), Counter[tuple[str, Labels]]()
        for each in counted:
            for name, labels, value in each["counts"]:
                whole._counts[name, _as_labels(labels)] += value
            for name, labels, value in each["gauges"]:
                gauges[name, _as_labels(labels)] += value
            for route, counts in each["times"].items():
                whole._times[route] = [a + b for a, b in zip(whole._times[route], counts, strict=True)]
                whole._seconds[route] += each["seconds"][route]
        for named in {name for name, _ in gauges}:
            found = {labels: value for (name, labels), value in gauges.items() if name == named}
            whole.watch(named, lambda found=found: found)  # type: ignore[misc]
        return whole

    def _lines(self) -> Iterator[str]:
        for name, (kind, about) in HELP.items():
            yield f"# HELP {name} {about}"
            yield f"# TYPE {name} {kind}"
            if kind == "histogram":
                yield from self._histograms(name)
            elif kind == "gauge":
                found = self._look(name).items()
                yield from (f"{name}{_labels(dict(labels))} {value}" for labels, value in found)
            else:
                counted = sorted((labels, value) for (each, labels), value in self._counts.items() if each == name)
                yield from (f"{name}{_labels(dict(labels))} {value}" for labels, value in counted or [((), 0)])

    def _look(self, name: str) -> Mapping[Labels, int]:
        return self._watched[name]() if name in self._watched else {}

    def _histograms(self, name: str) -> Iterator[str]:
        for route, counts in sorted(self._times.items()):
            total = 0
            for bound, counted in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                total += counted
                yield f"{name}_bucket{_labels({'route': route, 'le': bound})} {total}"
            yield f"{name}_sum{_labels({'route': route})} {self._seconds[route]:.6f}"
            yield f"{name}_count{_labels({'route': route})} {total}"


def _as_labels(pairs: Iterable[Iterable[str]]) -> Labels:
    return tuple((key, value) for key, value in pairs)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = {key: value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") for key, value in labels.items()}
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"
