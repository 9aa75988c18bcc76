"""Log files outside a store: for the JVM, and for jobs whose store is not a folder.

They are in the system's temporary folder, where any user may create files under any name. So a log is always a new
file, readable only by this user, under an unpredictable name: existing files and links are never written to.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["fresh_log"]


def fresh_log(owner: str) -> Path:
    """A new, empty log file; its name contains `owner` and the id of this process."""
    descriptor, path = tempfile.mkstemp(prefix=f"millstream-{owner}-{os.getpid()}-", suffix=".log")
    os.close(descriptor)
    return Path(path)
