"""A state as servers describe it to clients: its types, and how its keys fall into key groups.

A client asks the server that holds the key group of a key, and a server refuses keys of groups that it does not hold.
Both find the group here, by the hash that the job itself uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.records.columns import arrow_type
from millstream.state.keys.key_columns import is_stored_as_is, key_column, key_column_of_arrow
from millstream.state.schemas.saved_types import type_from

__all__ = ["ServedState"]

_GROUPS_MAX = 1 << 15
_TYPE_DEPTH_MAX = 64


@dataclass(frozen=True)
class ServedState:
    """A queryable state. Types are as a manifest writes them: "LONG", {"row": [...]}, "PICKLED" for none.

    `key_groups` is how many there are, the maximum parallelism of the operator; 0 where it is not known which group a
    key belongs to.
    """

    name: str
    kind: str
    key_type: Any
    value_type: Any
    is_pickled: bool
    key_groups: int

    @classmethod
    def parsed(cls, description: object) -> ServedState | None:
        """A state that a server describes; None for what describes none."""
        if not isinstance(description, Mapping):
            return None
        name, kind, groups = description.get("name"), description.get("kind"), description.get("key_groups")
        key_type, value_type = description.get("key_type"), description.get("value_type")
        if not (isinstance(name, str) and isinstance(kind, str) and type(groups) is int):
            return None
        if not (0 <= groups <= _GROUPS_MAX and _is_shallow(key_type) and _is_shallow(value_type)):
            return None
        return cls(name, kind, key_type, value_type, bool(description.get("is_pickled")), groups)

    def groups_of(self, keys: Sequence[Any]) -> list[int]:
        """The key group of every key.

        >>> ServedState("totals", "value", "STRING", "LONG", False, 128).groups_of(["a", "b"])
        [76, 83]
        """
        groups: list[int] = key_column(list(keys), self._declared).groups(self.key_groups).tolist()
        return groups

    def groups_of_column(self, keys: pa.Array) -> list[int]:
        """The key group of every key of a column; without a loop over the keys where it is of their declared type."""
        declared = self._declared
        if declared is None or not is_stored_as_is(declared) or keys.type != arrow_type(declared):
            return self.groups_of(keys.to_pylist())
        groups: list[int] = key_column_of_arrow(keys).groups(self.key_groups).tolist()
        return groups

    def column(self, keys: Sequence[Any]) -> pa.Array:
        """Keys as a column of their declared type."""
        return pa.array(keys, None if self._declared is None else arrow_type(self._declared))

    @property
    def _declared(self) -> TypeInformation | None:
        return None if self.key_type == "PICKLED" else type_from(self.key_type, f"the key of '{self.name}'")


def _is_shallow(written: Any, depth: int = 0) -> bool:
    """Whether a type, as it is written, is no deeper than types are."""
    inner = written.values() if isinstance(written, Mapping) else written if isinstance(written, list) else ()
    return depth < _TYPE_DEPTH_MAX and all(_is_shallow(part, depth + 1) for part in inner)
