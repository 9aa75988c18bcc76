"""Writing ORC files. Not built yet: `not_yet` has the names."""

from __future__ import annotations

from millstream.datastream.not_yet import names_of

__all__, __getattr__ = names_of(__name__)
