"""A stored pickle is opened here, and nowhere else.

Opening a pickle runs code that is in it. So it is done only by the job itself, which runs its owner's code anyway: in
tasks, in a replay of a past epoch (tasks in one process), and where the driver publishes output that a task staged.
Whoever reads a store from beside the job (inspection, verification, queries, the planning of a restore) has no way to
this module: pyproject.toml forbids them to import it, by whatever way round.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

__all__ = ["unpickled"]

# No function of ours: it is called for every value.
unpickled: Callable[[Any], Any] = pickle.loads
"""The value in a pickle (bytes, or a buffer of them) that this job wrote."""
