"""The settings of an environment as the program changes them: what the command line says stays.

A program that sets something else is told so once, at its line, with both values, and its value is dropped at once:
whoever reads the setting afterwards sees what the job will run with. A copy made by `Configuration(...)` is an ordinary
one, for what the engine itself sets for a job of its own.
"""

from __future__ import annotations

from typing import Any

from millstream.common.configuration import Configuration
from millstream.common.options import KNOWN
from millstream.common.options.flink_options import newest_name
from millstream.datastream.environment.launch_defaults import fixed_keys, launch_defaults
from millstream.graph.notices import warn_once
from millstream.graph.site import here
from millstream.redaction import redacted_value

__all__ = ["ProgramSettings"]


class ProgramSettings(Configuration):
    """A configuration that begins with what the command line says.

    >>> from millstream.datastream.environment.launch_defaults import with_launch_defaults
    >>> with with_launch_defaults({"parallelism.default": "4"}):
    ...     settings = ProgramSettings()
    >>> settings.set_integer("parallelism.default", 4).get_integer("parallelism.default", 1)
    4
    """

    def __init__(self) -> None:
        super().__init__()
        given = launch_defaults()
        self._fixed_keys = {newest_name(key): key for key in fixed_keys()}
        for key in self._fixed_keys.values():
            super()._set(key, given[key])

    def fixed(self, key: str) -> str | None:
        """What the command line says of a setting, under any name of it; None: nothing."""
        name = self._fixed_keys.get(newest_name(key))
        return None if name is None else self.get_string(name, None)

    def lose(self, key: str, value: str) -> None:
        """Tell the program that its value of a setting is not used."""
        fixed, name = self.fixed(key), self._fixed_keys[newest_name(key)]
        shown = f"{redacted_value(key, fixed or '')!r}: the program's {redacted_value(key, value)!r}"
        warn_once(f"{name} on the command line", f"the command line sets {name} to {shown} is not used", here())

    def remove_config(self, key: str) -> bool:
        """Removes a setting that the command line does not say; whether there was one."""
        return self.fixed(key) is None and super().remove_config(key)

    def _set(self, key: str, value: str, typed_value: Any = None) -> Configuration:
        fixed = self.fixed(key) if isinstance(key, str) else None
        if fixed is None or not isinstance(value, str):
            return super()._set(key, value, typed_value)
        if not _means(key, fixed, value):
            self.lose(key, value)
        return self


def _means(key: str, fixed: str, value: str) -> bool:
    """Whether two values of a setting are the same.

    >>> _means("execution.checkpointing.interval", "5 s", "5000 ms"), _means("millstream.store", "a", "b")
    (True, False)
    """
    option = KNOWN.get(key)
    if fixed == value or option is None:
        return fixed == value
    try:
        return bool(option.parse(fixed) == option.parse(value))
    except (ValueError, TypeError):  # it is refused where it is read
        return False
