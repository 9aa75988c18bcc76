"""PyFlink's helpers for Java objects: names that can be imported, and raise an error with an alternative when used."""

from __future__ import annotations

from millstream.pyflink_names import add_pyflink_names

__all__: list[str] = []

add_pyflink_names(globals())
