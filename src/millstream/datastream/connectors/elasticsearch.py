"""Writing to Elasticsearch. Not available: `not_yet` has the names, and says what to use."""

from __future__ import annotations

from millstream.datastream.not_yet import names_of

__all__, __getattr__ = names_of(__name__)
