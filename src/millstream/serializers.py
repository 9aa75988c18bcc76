"""PyFlink's serializers between Python and the JVM: names that raise an error with advice when used."""

from __future__ import annotations

from millstream.pyflink_names import add_pyflink_names

__all__: list[str] = []

add_pyflink_names(globals())
