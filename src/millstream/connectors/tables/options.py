"""The options of one table, checked against the options of its connector: names must be known, values well-formed.

A name that no connector, format or option family has is an error with the nearest name. Malformed values and missing
required options are errors too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from millstream.common.options.option import parse_boolean
from millstream.common.options.quantities import parse_bytes, parse_duration_ms
from millstream.connectors.tables.factory import TableOption
from millstream.errors import MillstreamError, ProgramError, did_you_mean
from millstream.redaction import redacted_value

__all__ = ["CONNECTOR", "GENERAL", "TableOptions"]

CONNECTOR = "connector"
GENERAL = (
    TableOption("scan.parallelism", "how many tasks read"),
    TableOption("sink.parallelism", "how many tasks write"),
    TableOption("scan.watermark.idle-timeout", "after this time watermarks ignore an input without rows"),
    TableOption("scan.watermark.alignment.group", "the sources aligned with each other"),
    TableOption("scan.watermark.alignment.max-drift", "how far one may be ahead of the others"),
    TableOption("scan.watermark.alignment.update-interval", "how often drift is checked", default="1 s"),
    TableOption("scan.watermark.emit.strategy", "accepted as in Flink; watermarks follow epochs"),
    TableOption("scan.watermark.emit.on-event.gap", "accepted as in Flink; watermarks follow epochs"),
)
"""Options of every table. The planner reads them, not the connector."""
_Value = TypeVar("_Value")
_SHOWN_MAX = 200


class TableOptions:
    """The WITH (…) options of a table.

    >>> known = (TableOption("rows-per-second", "how many", default="10000"),)
    >>> TableOptions("t", {"rows-per-second": "5"}, known).integer("rows-per-second")
    5
    >>> TableOptions("t", {"row-per-second": "5"}, known)
    Traceback (most recent call last):
    millstream.errors.ProgramError: table 't' has the option 'row-per-second', which its connector does not know. \
Did you mean 'rows-per-second'? It knows: rows-per-second
    """

    def __init__(self, table: str, settings: Mapping[str, str], known: Sequence[TableOption]) -> None:
        self.table = table
        self._own_names = sorted(option.name for option in known)
        self._known = {option.name: option for option in (*GENERAL, *known)}
        self._settings = {name: value for name, value in settings.items() if name != CONNECTOR}
        for name in self._settings:
            if self._option(name) is None:
                raise self._unknown(name)
        absent = [option.name for option in known if option.required and option.name not in self._settings]
        if absent:
            raise ProgramError(
                f"table {table!r} needs the option{'s' if len(absent) > 1 else ''} {', '.join(map(repr, absent))}. "
                f"Add in WITH (…): {'; '.join(f'{name!r}, {self._known[name].doc}' for name in absent)}"
            )

    def _option(self, name: str) -> TableOption | None:
        if name in self._known:
            return self._known[name]
        return next((each for each in self._known.values() if each.prefix and name.startswith(each.name)), None)

    def _unknown(self, name: str) -> ProgramError:
        names = sorted(self._known)
        shown = ", ".join(f"{each}*" if self._known[each].prefix else each for each in self._own_names) or "none"
        return ProgramError(
            f"table {self.table!r} has the option {name!r}, which its connector does not know."
            f"{did_you_mean(name, names)} It knows: {shown}"
        )

    def __contains__(self, name: str) -> bool:
        return name in self._settings

    def text(self, name: str) -> str | None:
        """The option as written, or its default."""
        text = self._settings.get(name)
        option = self._option(name)
        return text if text is not None or option is None else option.default

    def integer(self, name: str) -> int | None:
        """A whole number."""
        return self._parsed(name, int, "a whole number, such as 100")

    def number(self, name: str) -> float | None:
        return self._parsed(name, float, "a number, such as 0.5")

    def boolean(self, name: str) -> bool | None:
        return self._parsed(name, parse_boolean, "true or false")

    def duration_ms(self, name: str) -> int | None:
        """A duration: '5 s'."""
        return self._parsed(name, parse_duration_ms, "a duration, such as '5 s'")

    def bytes(self, name: str) -> int | None:
        """A size: '128 MB'."""
        return self._parsed(name, parse_bytes, "a size, such as '128 MB'")

    def choice(self, name: str, choices: Iterable[str]) -> str | None:
        """An option whose value is one of `choices`."""
        words = tuple(choices)
        value = self.text(name)
        if value is None or value in words:
            return value
        raise self.wrong(name, f"one of {', '.join(words)}.{did_you_mean(value, words)}")

    def listed(self, name: str) -> tuple[str, ...]:
        """Strings separated by semicolons."""
        value = self.text(name)
        return () if value is None else tuple(part.strip() for part in re.split("[;]", value) if part.strip())

    def below(self, prefix: str) -> dict[str, str]:
        """All options of a family, by the rest of the name."""
        return {name[len(prefix) :]: value for name, value in self._settings.items() if name.startswith(prefix)}

    def wrong(self, name: str, expected: str) -> ProgramError:
        """The error for a malformed value."""
        text = self.text(name)
        value = None if text is None else redacted_value(name, text)
        shown = f"{value[:_SHOWN_MAX]!r}…" if value is not None and len(value) > _SHOWN_MAX else repr(value)
        return ProgramError(f"table {self.table!r}: option {name!r} is {shown}, expected {expected}")

    def _parsed(self, name: str, parse: Callable[[str], _Value], expected: str) -> _Value | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            return parse(value.strip())
        except (ValueError, MillstreamError):
            raise self.wrong(name, expected) from None
