"""Configuration: settings by key, all stored as text, as in a file or on a command line.

Typed getters parse, typed setters write, as Flink writes: `true`, `1.0E10`, `[a, b]`. A configuration accepts any key;
keys are checked when a job is created (`options.check_key`), so a misspelt key is an error there, never here.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from millstream.common.config_options import ConfigOption
from millstream.common.typeinfo.number_text import number_text
from millstream.common.utils import refuse_java
from millstream.errors import ConfigurationError
from millstream.pyflink_names import add_pyflink_names
from millstream.redaction import redacted_options, redacted_value

__all__ = ["Configuration"]

_TRUTHS = {"true": True, "false": False}
_ITEM = r"""\s*(?:'(?P<single>(?:[^']|'')*)'|"(?P<double>[^"]*)"|(?P<bare>[^{separator}]*))\s*(?:{separator}|$)"""
"""One item of a list, with or without quotes, and the separator after it."""


class Configuration:
    """Settings by key.

    >>> configuration = Configuration().set_integer("parallelism.default", 4)
    >>> configuration.get_integer("parallelism.default", 1), configuration.to_dict()
    (4, {'parallelism.default': '4'})
    """

    def __init__(self, other: Configuration | None = None, j_configuration: Any = None) -> None:
        refuse_java(j_configuration, "Configuration(j_configuration)", "use Configuration() and its setters")
        if other is not None and not isinstance(other, Configuration):
            raise ConfigurationError(
                f"Configuration: found {other!r} ({type(other).__name__}), expected a Configuration. Make one of "
                "a dict by Configuration.from_dict(...)"
            )
        self._settings: dict[str, str] = {} if other is None else dict(other._settings)
        self._values: dict[str, Any] = {} if other is None else dict(other._values)

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:
        """A configuration of the mapping's settings."""
        if not isinstance(map, Mapping):
            raise ConfigurationError(f"from_dict: found {map!r} ({type(map).__name__}), expected a dict of settings")
        configuration = cls()
        for key, value in map.items():
            configuration._set(key, _text(value), value)
        return configuration

    def get_string(self, key: str, default_value: str | None) -> str | None:
        """The setting as text."""
        return self._settings.get(key, default_value)

    def set_string(self, key: str, value: str) -> Configuration:
        """Sets text."""
        return self._set(key, value)

    @staticmethod
    def parse_list_value(value: str | None) -> list[str]:
        """The items of a list setting, written `a;b`, or as YAML writes lists: `[a, b]`, or a line `- a` for each.

        >>> Configuration.parse_list_value("['a;b', c]"), Configuration.parse_list_value("a;b")
        (['a;b', 'c'], ['a', 'b'])
        """
        text = (value or "").strip()
        if text.startswith("[") and text.endswith("]"):
            return _items(text[1:-1], ",")
        lines = text.splitlines()
        if lines and all(line.lstrip().startswith("- ") for line in lines):
            return [item for line in lines for item in _items(line.lstrip()[2:], "\n")]
        return _items(text, ";")

    def get_integer(self, key: str, default_value: int) -> int:
        """The setting as a whole number."""
        text = self._settings.get(key)
        if text is None:
            return default_value
        try:
            return int(text)
        except ValueError:
            raise _unreadable(key, text, "a whole number") from None

    def set_integer(self, key: str, value: int) -> Configuration:
        """Sets a whole number."""
        return self._set(key, str(_checked(key, value, int)), int(value))

    def get_boolean(self, key: str, default_value: bool) -> bool:
        """The setting as True or False."""
        text = self._settings.get(key)
        if text is None:
            return default_value
        if text.strip().lower() not in _TRUTHS:
            raise _unreadable(key, text, "true or false")
        return _TRUTHS[text.strip().lower()]

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Sets True or False."""
        return self._set(key, "true" if _checked(key, value, bool) else "false", bool(value))

    def get_float(self, key: str, default_value: float) -> float:
        """The setting as a number."""
        text = self._settings.get(key)
        if text is None:
            return default_value
        try:
            return float(text)
        except ValueError:
            raise _unreadable(key, text, "a number") from None

    def set_float(self, key: str, value: float) -> Configuration:
        """Sets a number."""
        return self._set(key, _text(float(_checked(key, value, float))), float(value))

    def get_bytearray(self, key: str, default_value: bytearray | None) -> bytearray | None:
        """The setting as bytes."""
        text = self._settings.get(key)
        if text is None:
            return default_value
        try:
            return bytearray(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError):
            raise _unreadable(key, text, "bytes, as set_bytearray writes them (base64)") from None

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Sets bytes; stored as base64 text."""
        return self._set(key, base64.b64encode(_checked(key, value, bytes)).decode(), bytearray(value))

    def get(self, option: ConfigOption[Any]) -> Any:
        """The setting of a typed option, or the option's default (beyond PyFlink)."""
        text = self._settings.get(option.key)
        if text is None:
            return option.default
        try:
            return option.parse(text)
        except ValueError:
            raise _unreadable(option.key, text, f"a value of {option.type_name}") from None

    def key_set(self) -> set[str]:
        """All keys."""
        return set(self._settings)

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Adds all settings to the dict, each as the value it was set to: a number as a number."""
        target_dict.update(self._values)

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Copies all settings of another; with `prefix`, under longer keys."""
        for key, value in Configuration(other)._settings.items():
            self._set(f"{prefix or ''}{key}", value, other._values[key])
        return self

    def contains_key(self, key: str) -> bool:
        """Whether the key is set."""
        return key in self._settings

    def to_dict(self) -> dict[str, str]:
        """All settings as text, in the order they were first set."""
        return dict(self._settings)

    def remove_config(self, key: str) -> bool:
        """Removes a setting; returns whether it was set."""
        self._values.pop(key, None)
        return self._settings.pop(key, None) is not None

    def _set(self, key: str, value: str, typed_value: Any = None) -> Configuration:
        if not isinstance(key, str) or not key or not isinstance(value, str):
            raise ConfigurationError(
                f"setting {key!r} is set to {value!r} ({type(value).__name__}), expected a key and a string. "
                "Use the setter of the value's type, such as set_integer."
            )
        self._settings[key] = value
        self._values[key] = value if typed_value is None else typed_value
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Configuration:
        return Configuration(self)

    def __eq__(self, other: object) -> bool:
        return self._settings == other._settings if isinstance(other, Configuration) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._settings.items()))

    def __str__(self) -> str:
        """Java's text of a map: `{k1=v1, k2=1}`. Secrets are hidden."""
        return "{" + ", ".join(f"{key}={value}" for key, value in redacted_options(self._settings).items()) + "}"

    def __repr__(self) -> str:
        return f"Configuration({redacted_options(self._settings)})"


_SETTERS = {
    bool: ("set_boolean", "True or False"),
    int: ("set_integer", "a whole number"),
    float: ("set_float", "a number"),
    bytes: ("set_bytearray", "bytes"),
}


def _checked(key: str, value: Any, kind: type) -> Any:
    """The value, if it has the type that the setter accepts: bool("false") would be True."""
    fits = {
        bool: isinstance(value, bool),
        int: isinstance(value, Integral) and not isinstance(value, bool),
        float: isinstance(value, Real) and not isinstance(value, bool),
        bytes: isinstance(value, bytes | bytearray),
    }
    if not fits[kind]:
        setter, expected = _SETTERS[kind]
        raise ConfigurationError(
            f"{setter}: setting {key!r} is set to {value!r} ({type(value).__name__}), expected {expected}. A string is "
            "set by set_string"
        )
    return value


def _text(value: Any) -> str:
    """The value as Flink writes it into a configuration."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_item_text, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_item_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    return value if isinstance(value, str) else str(value)


def _item_text(item: Any) -> str:
    """A list item as YAML writes it: quoted if it contains punctuation."""
    text = _text(item)
    if text and text == text.strip() and not re.search(r"""[,;:\[\]{}'"#\n]""", text):
        return text
    return "'" + text.replace("'", "''") + "'"


def _items(text: str, separator: str) -> list[str]:
    items = []
    for match in re.finditer(_ITEM.format(separator=separator), text):
        if match["single"] is not None:
            items.append(match["single"].replace("''", "'"))
        elif match["double"] is not None:
            items.append(match["double"])
        elif match["bare"].strip():
            items.append(match["bare"].strip())
    return items


def _unreadable(key: str, text: str, expected: str) -> ConfigurationError:
    return ConfigurationError(
        f"{key} is set to {redacted_value(key, text)!r}, expected {expected}. Correct the setting."
    )


add_pyflink_names(globals())
