"""Writing ORC files.

Comes with connectors. The names and signatures are PyFlink's, so that programs can be written against them; making
or calling any of them says that it is not built yet, and what does the job meanwhile.
"""

from __future__ import annotations

from typing import Any

from millstream.errors import NotYetError

__all__ = [
    "OrcBulkWriters",
]

_INSTEAD = "ParquetBulkWriters"


def _not_yet(name: str) -> NotYetError:
    return NotYetError.of(name, "connectors", _INSTEAD)


class OrcBulkWriters:
    """PyFlink's `OrcBulkWriters`; not built yet."""

    @staticmethod
    def for_row_type(row_type: Any = None, writer_properties: Any = None, hadoop_config: Any = None) -> Any:
        raise _not_yet("OrcBulkWriters.for_row_type")
