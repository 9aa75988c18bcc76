"""Configuration: a bag of settings by key, all kept as text, as in a file or on a command line.

Typed getters parse, typed setters write. A bag takes any key; whether a key means anything is asked where a job
is made (`options.check_key`), so that a misspelt key is an error there and never here.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from millstream.common.config_options import ConfigOption
from millstream.common.utils import refuse_java
from millstream.errors import ConfigurationError

__all__ = ["Configuration"]

_TRUTHS = {"true": True, "false": False}


class Configuration:
    """Settings by key.

    >>> configuration = Configuration().set_integer("parallelism.default", 4)
    >>> configuration.get_integer("parallelism.default", 1), configuration.to_dict()
    (4, {'parallelism.default': '4'})
    """

    def __init__(self, other: Configuration | None = None, j_configuration: Any = None) -> None:
        refuse_java(j_configuration, "Configuration(j_configuration)", "use Configuration() and its setters")
        self._settings: dict[str, str] = {} if other is None else dict(other._settings)

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:
        """A configuration of the mapping's settings."""
        configuration = cls()
        for key, value in map.items():
            configuration._set(key, _text(value))
        return configuration

    def get_string(self, key: str, default_value: str | None) -> str | None:
        """The setting as text."""
        return self._settings.get(key, default_value)

    def set_string(self, key: str, value: str) -> Configuration:
        """Sets text."""
        return self._set(key, value)

    @staticmethod
    def parse_list_value(value: str) -> list[str]:
        """The items of a list setting, written `a;b` or `[a, b]`.

        >>> Configuration.parse_list_value("['a;b', c]"), Configuration.parse_list_value("a;b")
        (['a;b', 'c'], ['a', 'b'])
        """
        text = value.strip()
        if text.startswith("[") and text.endswith("]"):
            items = [item.strip().strip("'\"") for item in text[1:-1].split(",")]
        else:
            items = [item.strip() for item in text.split(";")]
        return [item for item in items if item]

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
        return self._set(key, str(int(value)))

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
        return self._set(key, "true" if value else "false")

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
        return self._set(key, repr(float(value)))

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
        """Sets bytes; kept as base64 text."""
        return self._set(key, base64.b64encode(value).decode())

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

    def add_all_to_dict(self, target_dict: dict[str, str]) -> None:
        """Adds all settings to the dict."""
        target_dict.update(self._settings)

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Takes over all settings of another; with `prefix`, under longer keys."""
        for key, value in other._settings.items():
            self._set(f"{prefix or ''}{key}", value)
        return self

    def contains_key(self, key: str) -> bool:
        """Whether there is a setting."""
        return key in self._settings

    def to_dict(self) -> dict[str, str]:
        """All settings as text, in the order they were first set."""
        return dict(self._settings)

    def remove_config(self, key: str) -> bool:
        """Removes a setting; whether there was one."""
        return self._settings.pop(key, None) is not None

    def _set(self, key: str, value: str) -> Configuration:
        if not isinstance(key, str) or not key or not isinstance(value, str):
            raise ConfigurationError(
                f"setting {key!r} is given {value!r} ({type(value).__name__}), expected a key and a text. "
                "Use the setter of the value's type, such as set_integer."
            )
        self._settings[key] = value
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Configuration:
        return Configuration(self)

    def __eq__(self, other: object) -> bool:
        return self._settings == other._settings if isinstance(other, Configuration) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._settings.items()))

    def __str__(self) -> str:
        return str(self._settings)

    def __repr__(self) -> str:
        return f"Configuration({self._settings})"


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _unreadable(key: str, text: str, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{key} is set to {text!r}, expected {expected}. Correct the setting.")
