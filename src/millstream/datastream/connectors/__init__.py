"""Sources and sinks, one module per system, under the module paths PyFlink programs import them from.

Beyond PyFlink there are `datagen` (records from a function), `python` (your own sources and sinks) and `socket`.
"""

from __future__ import annotations

from millstream.datastream.connectors.base import DeliveryGuarantee, Sink, Source
from millstream.pyflink_names import add_pyflink_names

__all__ = ["DeliveryGuarantee", "Sink", "Source"]

add_pyflink_names(globals())
