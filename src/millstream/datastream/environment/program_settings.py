"""An environment's settings, which the program may change unless they were set on the command line.

If the program sets a different value, a warning with both values is logged once, at its line, and the value is
discarded immediately: later reads return the value that the job will use. A copy made with `Configuration(...)` is an
ordinary configuration, for settings of the engine's own jobs.
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
    """A configuration that starts with the command-line settings.

    >>> from millstream.datastream.environment.launch_defaults import with_launch_defaults
    >>> with with_launch_defaults({"parallelism.default": "4"}):
    ...     settings = ProgramSettings()
    >>> settings.set_integer("parallelism.default", 4).get_integer("parallelism.default", 1)
    4
    """

    def __init__(self) -> None:
        super().__init__()
        defaults = launch_defaults()
        self._fixed_keys = {newest_name(key): key for key in fixed_keys()}
        for key in self._fixed_keys.values():
            super()._set(key, defaults[key])

    def fixed(self, key: str) -> str | None:
        """The command-line value of a setting, under any of its names; None if not set there."""
        name = self._fixed_keys.get(newest_name(key))
        return None if name is None else self.get_string(name, None)

    def warn_of_override(self, key: str, value: str) -> None:
        """Warns that the program's value of a setting is not used."""
        fixed, name = self.fixed(key), self._fixed_keys[newest_name(key)]
        shown = f"{redacted_value(key, fixed or '')!r}: the program's {redacted_value(key, value)!r}"
        warn_once(f"{name} on the command line", f"the command line sets {name} to {shown} is not used", here())

    def remove_config(self, key: str) -> bool:
        """Removes a setting that is not set on the command line; returns whether it existed."""
        return self.fixed(key) is None and super().remove_config(key)

    def _set(self, key: str, value: str, typed_value: Any = None) -> Configuration:
        fixed = self.fixed(key) if isinstance(key, str) else None
        if fixed is None or not isinstance(value, str):
            return super()._set(key, value, typed_value)
        if not _means(key, fixed, value):
            self.warn_of_override(key, value)
        return self


def _means(key: str, fixed: str, value: str) -> bool:
    """Whether two values of a setting are equivalent.

    >>> _means("execution.checkpointing.interval", "5 s", "5000 ms"), _means("millstream.store", "a", "b")
    (True, False)
    """
    option = KNOWN.get(key)
    if fixed == value or option is None:
        return fixed == value
    try:
        return bool(option.parse(fixed) == option.parse(value))
    except (ValueError, TypeError):  # rejected where it is read
        return False
