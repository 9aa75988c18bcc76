"""Errors for missing methods of a stream, or of an intermediate object in building one.

Most such names are valid but misplaced: `reduce` before `key_by`, `print` before the windows have an operation. The
message therefore states the missing step, or otherwise a similar name. The error is also an AttributeError, so that
`hasattr`, `copy` and debuggers work as usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from millstream.errors import MissingNameError, did_you_mean
from millstream.graph.site import here

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["Hints", "MissingNameHints"]

Hints = tuple[tuple[frozenset[str] | str, str], ...]


class MissingNameHints:
    """Adds a hint to the error of a missing attribute. `_hints`: names, or a class of `millstream.datastream` that
    defines them, each with the missing step."""

    _hints: ClassVar[Hints] = ()

    if not TYPE_CHECKING:  # a type checker would otherwise accept every name

        def __getattr__(self, name: str) -> NoReturn:
            raise _missing_name(self, name)


# Names from other libraries.
_SYNONYMS = {
    "collect": "execute_and_collect",
    "for_each": "add_sink",
    "foreach": "add_sink",
    "group_by": "key_by",
    "groupby": "key_by",
    "select": "map",
    "show": "print",
    "where": "filter",
    "write_as_text": "sink_to",
}


def _missing_name(owner: MissingNameHints, name: str) -> AttributeError:
    kind = type(owner)
    if name.startswith("_"):  # accessed by Python itself, or by the engine
        return AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=owner)
    message = f"{kind.__name__} has no {name!r}."
    if _SYNONYMS.get(name) in dir(kind):
        return MissingNameError(f"{message} Here it is called {_SYNONYMS[name]!r}", at=str(here()))
    hint = next((hint for other, hint in kind._hints if _has(other, name)), None)
    if hint is None:
        own_names = [known for known in dir(kind) if not known.startswith("_")]
        message += did_you_mean(name, own_names) or f" It has {', '.join(own_names)}"
    else:
        message += f" {hint.format(name=name)}"
    return MissingNameError(message, at=str(here()))


def _has(other: frozenset[str] | str, name: str) -> bool:
    from millstream import datastream

    return hasattr(getattr(datastream, other), name) if isinstance(other, str) else name in other
