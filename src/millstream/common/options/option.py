"""One known setting: its key, how its value is parsed, its default, and its effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from millstream.common.configuration import Configuration
from millstream.common.options.quantities import parse_bytes, parse_duration_ms
from millstream.errors import ConfigurationError
from millstream.redaction import redacted_value

__all__ = ["Option", "OptionType", "parse_boolean"]


class OptionType(Enum):
    """How a setting's text is parsed. Durations become milliseconds, memory sizes bytes, lists lists of text."""

    STRING = "text"
    INT = "a whole number"
    FLOAT = "a number"
    BOOLEAN = "true or false"
    DURATION = "a duration such as '10 s'"
    MEMORY = "a memory size such as '64mb'"
    LIST = "a list such as 'a;b'"


def parse_boolean(text: str) -> bool:
    """Whether a string means true; raises ConfigurationError unless it is true or false.

    >>> parse_boolean("TRUE"), parse_boolean("false")
    (True, False)
    """
    return Configuration().set_string("it", text).get_boolean("it", False)


_PARSERS: dict[OptionType, Callable[[str], Any]] = {
    OptionType.STRING: str,
    OptionType.INT: int,
    OptionType.FLOAT: float,
    OptionType.BOOLEAN: parse_boolean,
    OptionType.DURATION: parse_duration_ms,
    OptionType.MEMORY: parse_bytes,
    OptionType.LIST: Configuration.parse_list_value,
}


@dataclass(frozen=True)
class Option:
    """A known key. `effect` is False for Flink's settings that change nothing here.

    >>> Option("user.pause", OptionType.DURATION, 0, "A pause.").parse("2 s")
    2000
    """

    key: str
    type: OptionType
    default: Any
    doc: str
    effect: bool = True
    choices: tuple[str, ...] = ()

    def parse(self, text: str) -> Any:
        """The setting's value; raises ConfigurationError with key, text and the expected form."""
        shown = redacted_value(self.key, text)
        try:
            value = _PARSERS[self.type](text.strip())
        except (ValueError, ConfigurationError):
            raise ConfigurationError(
                f"{self.key} is set to {shown!r}, expected {self.type.value}. Correct the setting."
            ) from None
        if self.choices and str(value).lower() not in self.choices:
            raise ConfigurationError(f"{self.key} is set to {shown!r}, expected one of {', '.join(self.choices)}.")
        return str(value).lower() if self.choices else value
