"""File and message formats, one module each, under the module paths PyFlink programs import them from."""

from __future__ import annotations

from millstream.pyflink_names import add_pyflink_names

add_pyflink_names(globals())
