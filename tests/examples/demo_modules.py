"""The modules of examples/impressions, importable from each other like those of a program."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from millstream.common import Row

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "impressions"
RECORDS, PER_SECOND = 3_000, 75.0


@dataclass(frozen=True)
class Example:
    """The program, the judge of its output, the query client, and the demo that runs it."""

    job: ModuleType
    asking: ModuleType
    judge: ModuleType
    telling: ModuleType
    demo: ModuleType

    @cached_property
    def server(self) -> Any:
        """Forty seconds of impressions."""
        return self.job.AdServer(per_second=PER_SECOND)

    @cached_property
    def humans(self) -> list[Row]:
        humans: list[Row] = self.judge.human_impressions(self.server, range(RECORDS))
        return humans


@contextmanager
def imported_example() -> Iterator[Example]:
    """The modules, importable within the block: other examples have some of the same names."""
    names = ("job", "asking", "judge", "telling", "demo")
    sys.path.insert(0, str(FOLDER))
    try:
        yield Example(*(importlib.import_module(name) for name in names))
    finally:
        sys.path.remove(str(FOLDER))
        for name in names:
            sys.modules.pop(name, None)
