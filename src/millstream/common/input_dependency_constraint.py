"""When a consumer may start, in Flink's batch scheduling; without effect here."""

from __future__ import annotations

from enum import Enum

from millstream.pyflink_names import add_pyflink_names

__all__ = ["InputDependencyConstraint"]


class InputDependencyConstraint(Enum):
    """Whether a task waits for any of its inputs or for all. Spark schedules stages, so it has no effect here."""

    ANY = 0
    ALL = 1


add_pyflink_names(globals())
