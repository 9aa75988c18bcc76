"""Placeholders for writing to Cassandra, which is not supported; `not_yet` lists the alternatives."""

from __future__ import annotations

from millstream.datastream.not_yet import names_of
from millstream.pyflink_names import add_pyflink_names

__all__, __getattr__ = names_of(__name__)

add_pyflink_names(globals())
