"""Opens stored pickles; no other module does.

Opening a pickle runs the code in it. So only the job itself opens pickles, since it runs its owner's code anyway: in
tasks, in a replay of a past epoch (tasks in one process), and where the driver publishes output that a task staged.
Readers outside the job (inspection, verification, queries, the planning of a restore) cannot reach this module:
pyproject.toml forbids importing it, directly or through others.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

__all__ = ["unpickled"]

# Not wrapped in a function: it is called for every value.
unpickled: Callable[[Any], Any] = pickle.loads
"""The value in a pickle (bytes, or a buffer of them) that this job wrote."""
