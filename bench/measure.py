"""Measurements: requirements with their figures, rounds of turns, and the verdict.

A machine is never quiet, so a figure here is a ratio of things measured in turn in one run: whatever slows one of them
slows the other too. Every round runs each contestant once, in an order that changes from round to round, and the ratio
is the median over the rounds. Nothing in these files states a figure; all of them are measured when run.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

__all__ = ["Machine", "Report", "Requirement", "at_least", "at_most", "median_ratio", "take_turns", "timed_s"]


@dataclass(frozen=True)
class Requirement:
    """One requirement, its figure, and whether it holds. `target` is the bound as text: `≥ 0.8`."""

    name: str
    figure: float
    target: str
    unit: str
    passed: bool
    note: str = ""

    def line(self) -> str:
        """One line of the report."""
        verdict = "PASS" if self.passed else "FAIL"
        note = f"   ({self.note})" if self.note else ""
        return f"{verdict}  {self.name:<58} {self.figure:>8.3f} {self.unit:<3} {self.target} {self.unit}{note}"


def at_least(name: str, figure: float, bound: float, unit: str = "×", note: str = "") -> Requirement:
    """A requirement that `figure` reaches `bound`.

    >>> at_least("speed", 0.9, 0.8).passed, at_least("speed", 0.7, 0.8).target
    (True, '≥ 0.8')
    """
    return Requirement(name, figure, f"≥ {bound:g}", unit, figure >= bound, note)


def at_most(name: str, figure: float, bound: float, unit: str = "×", note: str = "") -> Requirement:
    """A requirement that `figure` stays within `bound`.

    >>> at_most("epoch", 1.4, 1.3).passed
    False
    """
    return Requirement(name, figure, f"≤ {bound:g}", unit, figure <= bound, note)


def timed_s(action: Callable[[], object]) -> float:
    """The duration of `action`."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def take_turns(
    contestants: Mapping[str, Callable[[], float]], rounds: int, warm_up_rounds: int = 1
) -> dict[str, list[float]]:
    """Run every contestant once per round, the order rotated by one each time; returns their figures by round.

    >>> take_turns({"a": lambda: 1.0, "b": lambda: 2.0}, rounds=2)
    {'a': [1.0, 1.0], 'b': [2.0, 2.0]}
    """
    names = list(contestants)
    figures: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(warm_up_rounds + rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            figure = contestants[name]()
            if turn >= warm_up_rounds:
                figures[name].append(figure)
    return figures


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """The median of the ratios of neighbours: figures of the same round suffered the same neighbours.

    >>> median_ratio([2.0, 40.0, 3.0], [1.0, 20.0, 3.0])
    2.0
    """
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


@dataclass(frozen=True)
class Machine:
    """The machine of the figures, and its load at the end (`load`: runnable processes, 1 minute)."""

    cores: int
    load: float
    python: str
    system: str

    @classmethod
    def here(cls) -> Machine:
        """This machine, now."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        system = f"{platform.system()} {platform.machine()}"
        return cls(cores, round(os.getloadavg()[0], 1), platform.python_version(), system)


class Report:
    """Collects requirements and notes; prints each immediately, or all as JSON at the end."""

    def __init__(self, title: str, *, as_json: bool, quick: bool) -> None:
        self.title, self._as_json, self.quick = title, as_json, quick
        self.requirements: list[Requirement] = []
        self.notes: list[str] = []
        if quick:
            self.note("--quick: smaller sizes and fewer rounds; the figures are a smoke test, not a measurement")

    def add(self, requirement: Requirement) -> None:
        """Add a requirement."""
        self.requirements.append(requirement)
        if not self._as_json:
            print(requirement.line(), flush=True)

    def note(self, text: str) -> None:
        """Additional information, such as absolute figures."""
        self.notes.append(text)
        print(f"      {text}", file=sys.stderr if self._as_json else sys.stdout, flush=True)

    def close(self) -> int:
        """The exit code: 0 if every requirement holds."""
        machine = Machine.here()
        passed = all(requirement.passed for requirement in self.requirements)
        if self._as_json:
            body = {
                "benchmark": self.title,
                "quick": self.quick,
                "passed": passed,
                "machine": asdict(machine),
                "requirements": [asdict(requirement) for requirement in self.requirements],
                "notes": self.notes,
            }
            print(json.dumps(body, indent=2, ensure_ascii=False))
        else:
            holding = sum(requirement.passed for requirement in self.requirements)
            print(
                f"      {self.title}: {holding} of {len(self.requirements)} hold; {machine.cores} cores, "
                f"load {machine.load}, Python {machine.python}, {machine.system}"
            )
        return 0 if passed else 1
