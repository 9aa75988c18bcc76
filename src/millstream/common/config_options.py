"""Typed options: a key, a type, and perhaps a default. `Configuration.get` reads settings by them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from millstream.common.utils import refuse_java
from millstream.pyflink_names import add_pyflink_names

__all__ = ["ConfigOption", "ConfigOptions"]

T = TypeVar("T")


def _parse_boolean(text: str) -> bool:
    truths = {"true": True, "false": False}
    if text.strip().lower() not in truths:
        raise ValueError(text)
    return truths[text.strip().lower()]


class ConfigOptions:
    """Makes options, step by step.

    >>> option = ConfigOptions.key("user.retries").int_type().default_value(3)
    >>> option.key, option.default
    ('user.retries', 3)
    """

    def __init__(self, j_config_options: Any = None) -> None:
        refuse_java(j_config_options, "ConfigOptions(j_config_options)", "use ConfigOptions.key(...)")

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Starts with the key."""
        builder = ConfigOptions.OptionBuilder()
        builder._key = key
        return builder

    class OptionBuilder:
        """Has a key and needs a type."""

        def __init__(self, j_option_builder: Any = None) -> None:
            refuse_java(j_option_builder, "OptionBuilder(j_option_builder)", "use ConfigOptions.key(...)")
            self._key = ""

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """True or False."""
            return self._typed("boolean", _parse_boolean)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """A whole number."""
            return self._typed("int", int)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """A whole number."""
            return self._typed("long", int)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """A number."""
            return self._typed("float", float)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """A number."""
            return self._typed("double", float)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Text."""
            return self._typed("string", str)

        def _typed(self, type_name: str, parse: Callable[[str], T]) -> ConfigOptions.TypedConfigOptionBuilder[T]:
            builder: ConfigOptions.TypedConfigOptionBuilder[T] = ConfigOptions.TypedConfigOptionBuilder()
            builder._option = ConfigOption._of(self._key, type_name, parse)
            return builder

    class TypedConfigOptionBuilder(Generic[T]):
        """Has a key and a type and needs a default, or none."""

        _option: ConfigOption[T]

        def __init__(self, j_typed_config_option_builder: Any = None) -> None:
            refuse_java(j_typed_config_option_builder, "TypedConfigOptionBuilder", "use ConfigOptions.key(...)")

        def default_value(self, value: T) -> ConfigOption[T]:
            """The option, with a default."""
            return ConfigOption._of(self._option.key, self._option.type_name, self._option.parse, value)

        def no_default_value(self) -> ConfigOption[T]:
            """The option, without a default: a missing setting is None."""
            return self._option


class ConfigOption(Generic[T]):
    """A key with a type and perhaps a default."""

    key: str
    type_name: str
    parse: Callable[[str], T]
    default: T | None

    def __init__(self, j_config_option: Any = None) -> None:
        refuse_java(j_config_option, "ConfigOption(j_config_option)", "use ConfigOptions.key(...)")
        self.key, self.type_name, self.default = "", "string", None

    @classmethod
    def _of(cls, key: str, type_name: str, parse: Callable[[str], T], default: T | None = None) -> ConfigOption[T]:
        option: ConfigOption[T] = cls()
        option.key, option.type_name, option.parse, option.default = key, type_name, parse, default
        return option

    def __repr__(self) -> str:
        return f"<ConfigOption {self.key}: {self.type_name}, default {self.default!r}>"


add_pyflink_names(globals())
