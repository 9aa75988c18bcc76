"""Reading from and writing to Kafka, under PyFlink's module path: see `source` and `sink`.

The sink is not built yet: `not_yet` has its names.
"""

from __future__ import annotations

from millstream.datastream.not_yet import names_of

__all__, __getattr__ = names_of(__name__)
