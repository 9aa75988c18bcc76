"""Adapts a Configuration to the mapping that the planner's session reads and SET changes."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

from millstream.common.configuration import Configuration

__all__ = ["SettingsMapping"]


class SettingsMapping(MutableMapping[str, str]):
    """The settings of a table environment, with those of its stream environment as defaults.

    >>> settings = SettingsMapping(Configuration(), Configuration.from_dict({"parallelism.default": 2}))
    >>> settings["parallelism.default"], "table.local-time-zone" in settings
    ('2', False)
    """

    def __init__(self, configuration: Configuration, below: Configuration) -> None:
        self._configuration = configuration
        self._below = below

    def __getitem__(self, key: str) -> str:
        value = self._configuration.get_string(key, None)
        if value is None:
            value = self._below.get_string(key, None)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: str) -> None:
        self._configuration.set_string(key, value)

    def __delitem__(self, key: str) -> None:
        if key not in self._configuration.key_set():
            raise KeyError(key)
        self._configuration.remove_config(key)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._configuration.key_set() | self._below.key_set()))

    def __len__(self) -> int:
        return len(self._configuration.key_set() | self._below.key_set())
