"""Values without a type become pickles: the half that writes.

Writing a pickle runs nothing that is stored, so anybody may. Reading one runs whatever its writer put into it; that is
`records.unpickling`, which only the job itself may import. Invariant: nothing in this module opens a pickle, and no
other module of stored values imports `pickle` (pyproject.toml holds both, by its contracts on imports).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pickle import PicklingError
from typing import Any

__all__ = ["PicklingError", "pickled"]

# No function of ours: it is called for every value, and a Python frame would cost as much as a small pickle.
pickled: Callable[[Any], bytes] = partial(pickle.dumps, protocol=5)
"""The value as a pickle."""
