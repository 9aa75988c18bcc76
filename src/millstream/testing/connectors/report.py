"""The report of a connector check, in sentences.

A check tests one promise of the contract. Its verdict is passed, failed (with details), or left out (with the reason):
a report never hides an omitted check. A report with a failure is raised as an error, so that `check_source(...)` alone
is a complete test.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Check", "Checklist", "ConnectorCheckError", "Report", "Skipped"]

_MARKS = {"passed": "✓", "failed": "✗", "left out": "–"}
_SHOWN_CHARACTERS_MAX = 1_500


class Skipped(Exception):
    """Raised inside a check that does not apply; the text is the reason."""


@dataclass(frozen=True)
class Check:
    """One promise: its short `name` (by which it can be left out), the `sentence`, and the verdict."""

    name: str
    sentence: str
    verdict: Literal["passed", "failed", "left out"]
    detail: str = ""

    def __str__(self) -> str:
        detail = f": {self.detail}" if self.detail else ""
        return f"{_MARKS[self.verdict]} {self.sentence}{detail}  [{self.name}]"


class ConnectorCheckError(AssertionError):
    """A connector breaks its contract. The text is the report, failures first; `report` has all of it."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True)
class Report:
    """The checks of one connector. Its text is for people; `check(name)` and `failures` are for programs."""

    subject: str
    promise: str
    checks: tuple[Check, ...]

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.verdict == "failed")

    def check(self, name: str) -> Check:
        """The check of that name."""
        return next(check for check in self.checks if check.name == name)

    def __str__(self) -> str:
        counts = {verdict: sum(check.verdict == verdict for check in self.checks) for verdict in _MARKS}
        summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        ordered = sorted(self.checks, key=lambda check: check.verdict != "failed")
        return "\n".join([f"{self.subject} ({self.promise}): {summary}", *(f"  {check}" for check in ordered)])


@dataclass
class Checklist:
    """Runs all checks one after the other, failed or not, and cleans up after each. `left_out`: names of checks,
    each with the reason."""

    subject: str
    promise: str
    left_out: Mapping[str, str]
    checks: list[Check] = field(default_factory=list)
    clean_up: Callable[[], None] = lambda: None

    def run(self, name: str, sentence: str, attempt: Callable[[], str | None]) -> bool:
        """Test one promise: `attempt` returns a detail (or None), or raises. Returns whether it passed."""
        if name in self.left_out:
            self.checks.append(Check(name, sentence, "left out", self.left_out[name]))
            return False
        try:
            self.checks.append(Check(name, sentence, "passed", attempt() or ""))
        except Skipped as reason:
            self.checks.append(Check(name, sentence, "left out", str(reason)))
            return False
        except Exception as error:
            self.checks.append(Check(name, sentence, "failed", _failure_text(error)))
            return False
        finally:
            self.clean_up()
        return True

    def report(self, raises: bool) -> Report:
        """The report; with `raises`, as an error if a check failed."""
        report = Report(self.subject, self.promise, tuple(self.checks))
        unknown = sorted(set(self.left_out) - {check.name for check in self.checks})
        if unknown and not report.failures:  # after a failure not every check runs
            names = ", ".join(check.name for check in self.checks)
            raise ValueError(f"{self.subject}: there is no check {unknown[0]!r} to leave out; there are {names}")
        if raises and report.failures:
            raise ConnectorCheckError(report)
        return report


def _failure_text(error: Exception) -> str:
    """The failure's text. Exceptions of the connector include their line."""
    if isinstance(error, AssertionError):
        return str(error)
    lines = traceback.extract_tb(error.__traceback__)
    place = f" ({lines[-1].filename.rsplit('/', 1)[-1]}:{lines[-1].lineno})" if lines else ""
    text = f"it raised {type(error).__name__}: {error}{place}"
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else text[:_SHOWN_CHARACTERS_MAX] + "…"
