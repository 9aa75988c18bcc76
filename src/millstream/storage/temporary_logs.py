"""Log files outside a store: of the JVM, and of jobs whose store is no folder.

They stand in the system's temporary folder, where anybody may have put anything under any name. So a log is always a
new file, made for this user alone under a name that cannot be guessed: a file or link that is there already is never
written to.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["fresh_log"]


def fresh_log(owner: str) -> Path:
    """A new, empty log file; its name holds `owner` and the id of this process, so that people find it."""
    descriptor, path = tempfile.mkstemp(prefix=f"millstream-{owner}-{os.getpid()}-", suffix=".log")
    os.close(descriptor)
    return Path(path)
