"""PyFlink's Table API. Not built yet: importing one of its names raises NotYetError, which is an ImportError here."""

from __future__ import annotations

from millstream.datastream.not_yet import names_of, refuse_modules_below

__all__, __getattr__ = names_of(__name__)

refuse_modules_below(__name__)
