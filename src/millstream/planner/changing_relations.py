"""Relations of tables that change at their edges: what makes full changes of upserts, beside `relations`.

They are no different from other relations. A pass or a rule that knows nothing of them sees one input, whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.planner.relations import Relation

__all__ = ["Normalise"]


@dataclass(frozen=True)
class Normalise(Relation):
    """A table of upserts as one whose rows go as they were: a row by `keys`, columns of the input, is kept, and given
    back before the next one with its key. Flink's ChangelogNormalize."""

    input: Relation
    keys: tuple[int, ...]
