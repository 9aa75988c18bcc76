"""Stored pickles are opened here, and nowhere else.

Opening a pickle runs code that is in it. So only the job itself does it, which runs its owner's code anyway: in tasks,
in a replay of a past epoch (tasks in one process), and where the driver publishes output that a task staged. Readers
beside the job (inspection, verification, queries, the planning of a restore) cannot reach this module: pyproject.toml
forbids them to import it, directly or through others.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

__all__ = ["unpickled"]

# No function of ours: it is called for every value.
unpickled: Callable[[Any], Any] = pickle.loads
"""The value in a pickle (bytes, or a buffer of them) that this job wrote."""
