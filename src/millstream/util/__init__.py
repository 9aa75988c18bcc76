"""PyFlink's `util` package: the exceptions of catalogs and the marks of stability."""

from __future__ import annotations

from millstream.pyflink_names import add_pyflink_names

__all__: list[str] = []

add_pyflink_names(globals())
