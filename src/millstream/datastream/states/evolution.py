"""A program's declarations of earlier state types, and user-defined serialisers.

These go beyond PyFlink, where Java serialisers read state. Type changes that can be resolved automatically
(`state.schemas.evolution`) need no declaration. Invariant: an invalid declaration is rejected at its line. Whether it
matches the saved state is checked when the job starts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.streams.argument_checks import refuse
from millstream.state.schemas.evolution import Evolution

__all__ = ["StateSerializer", "Upgrade", "checked_evolution"]

T = TypeVar("T")


class StateSerializer(ABC, Generic[T]):
    """Writes the values of a state in a user-defined binary format instead of pickle.

    `version` is stored with the values. When the format changes, increase it; `deserialize` must read every version
    ever used. Compaction rewrites values of older versions.

    >>> class Celsius(StateSerializer[float]):
    ...     version = 2
    ...     def serialize(self, value: float) -> bytes:
    ...         return repr(value).encode()
    ...     def deserialize(self, data: bytes, version: int) -> float:
    ...         read = float(data)
    ...         return read if version >= 2 else (read - 32) / 1.8  # version 1 wrote Fahrenheit
    >>> Celsius().deserialize(b"50", 1)
    10.0
    """

    version: int = 1

    @abstractmethod
    def serialize(self, value: T) -> bytes:
        """The value as bytes, in the current version."""

    @abstractmethod
    def deserialize(self, data: bytes, version: int) -> T:
        """The value from bytes written by `serialize` of this version."""


Upgrade: TypeAlias = Callable[[Any], Any] | Mapping[TypeInformation | StateSerializer[Any], Callable[[Any], Any]]
"""A function from an old value to a new one; or a mapping from saved types (or serialisers) to functions."""


def checked_evolution(
    state: str,
    *,
    renames: Mapping[str, str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    upgrade: Upgrade | None = None,
    serializer: Any = None,
) -> Evolution:
    """The evolution that a program declares for a state; rejects contradictions."""
    new_names, default_values = dict(renames or {}), dict(defaults or {})
    if not all(isinstance(part, str) and part for pair in new_names.items() for part in pair):
        raise refuse(f"evolve of '{state}': found renames={new_names!r}, expected names: {{old: new}}")
    dotted = next((new for new in new_names.values() if "." in new), None)
    if dotted is not None:
        raise refuse(f"evolve of '{state}': found {dotted!r} as a new name, expected it without a path")
    if len(set(new_names.values())) < len(new_names) and not any("." in old for old in new_names):
        raise refuse(f"evolve of '{state}': found renames={new_names!r}, two fields with one new name")
    if not all(isinstance(name, str) for name in default_values):
        raise refuse(f"evolve of '{state}': found defaults={default_values!r}, expected {{field: value}}")
    _check_upgrade(state, upgrade)
    version = getattr(serializer, "version", None)
    if serializer is not None and (
        not isinstance(serializer, StateSerializer) or isinstance(version, bool) or not isinstance(version, int)
    ):
        raise refuse(f"state '{state}': found serializer={serializer!r}, expected a StateSerializer with a version")
    return Evolution(new_names, default_values, upgrade, serializer)


def _check_upgrade(state: str, upgrade: Any) -> None:
    expected = "expected a function from an old value to a new one, or {old type: function}"
    if upgrade is None or (callable(upgrade) and not isinstance(upgrade, TypeInformation)):
        return
    if not isinstance(upgrade, Mapping):
        raise refuse(f"state '{state}': found upgrade={upgrade!r}, {expected}")
    for old, function in upgrade.items():
        if not isinstance(old, (TypeInformation, StateSerializer)) or not callable(function):
            raise refuse(f"state '{state}': found {old!r}: {function!r} in upgrade=, {expected}")
