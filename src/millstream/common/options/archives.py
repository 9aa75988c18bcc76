"""The setting `python.archives`: files, each with its target in the working directory of functions after `#`."""

from __future__ import annotations

from pathlib import PurePosixPath

from millstream.errors import ConfigurationError

__all__ = ["ARCHIVE_ENDINGS", "archive_target"]

ARCHIVE_ENDINGS = (".zip", ".jar", ".tar", ".tar.gz", ".tgz")
"""The endings of archives that Spark unpacks."""


def archive_target(item: str, at: str | None = None) -> PurePosixPath:
    """Where an item of the setting is unpacked. Raises ConfigurationError for archives that Spark does not unpack, and
    for targets outside of the working directory.

    >>> str(archive_target("jobs/data.zip#data")), str(archive_target("jobs/data.zip"))
    ('data', 'data.zip')
    """
    file, _, target = item.partition("#")
    if not file.endswith(ARCHIVE_ENDINGS):
        raise ConfigurationError(
            f"python.archives: {file!r} is not an archive: expected a name that ends with {', '.join(ARCHIVE_ENDINGS)}",
            at=at,
        )
    if "," in item or "#" in target:
        raise ConfigurationError(
            f"python.archives: {item!r} has a comma or a second '#' in it, which part archives and their "
            "targets there. Rename the file or its target",
            at=at,
        )
    place = PurePosixPath(target or PurePosixPath(file).name)
    if place.is_absolute() or ".." in place.parts or not place.parts:
        raise ConfigurationError(
            f"python.archives: {file!r} is to be unpacked in {target!r}, outside of the working directory of the "
            "functions. Use a relative path such as 'data'",
            at=at,
        )
    return place
