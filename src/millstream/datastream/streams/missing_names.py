"""What is said when a stream, or what a step on the way to one returned, has no such method.

Most such names are right and stand in the wrong place: `reduce` before `key_by`, `print` before it was said what is
done with windows. So the object says how to get there, or else which of its own names is near. The error is an
AttributeError as well: whoever only asks (`hasattr`, `copy`, a debugger) is answered as by any object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from millstream.errors import MissingNameError, did_you_mean
from millstream.graph.site import here

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["Elsewhere", "MissingNameHints"]

Elsewhere = tuple[tuple[frozenset[str] | str, str], ...]


class MissingNameHints:
    """Says of a missing attribute where it is. `_elsewhere`: names, or a class of `millstream.datastream` that has
    them, each with what to do about it."""

    _elsewhere: ClassVar[Elsewhere] = ()

    if not TYPE_CHECKING:  # a type checker would then take every name for granted

        def __getattr__(self, name: str) -> NoReturn:
            raise _missing_name(self, name)


# What other libraries call it.
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
    if name.startswith("_"):  # asked by Python itself, or by us
        return AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=owner)
    message = f"{kind.__name__} has no {name!r}."
    if _SYNONYMS.get(name) in dir(kind):
        return MissingNameError(f"{message} Here it is called {_SYNONYMS[name]!r}", at=str(here()))
    way = next((way for other, way in kind._elsewhere if _has(other, name)), None)
    if way is None:
        own_names = [known for known in dir(kind) if not known.startswith("_")]
        message += did_you_mean(name, own_names) or f" It has {', '.join(own_names)}"
    else:
        message += f" {way.format(name=name)}"
    return MissingNameError(message, at=str(here()))


def _has(other: frozenset[str] | str, name: str) -> bool:
    from millstream import datastream

    return hasattr(getattr(datastream, other), name) if isinstance(other, str) else name in other
