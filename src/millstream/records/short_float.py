"""A FLOAT as the shortest number that denotes it: 32 bits hold 1.23 as 1.2300000190734863, which Flink writes as
1.23."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["short_float"]


def short_float(value: Any) -> Any:
    """The float with the FLOAT's shortest decimal representation; None stays None.

    >>> short_float(1.2300000190734863), short_float(None)
    (1.23, None)
    """
    return value if value is None else float(str(np.float32(value)))
