"""Which errors of the operating system pass by themselves: the file cannot be reached now, and may be in a moment.

They say nothing about the file itself, so they are never taken for damage.
"""

from __future__ import annotations

import errno

__all__ = ["is_transient"]

_TRANSIENT = frozenset(
    number
    for name in (
        *("EIO", "ESTALE", "ETIMEDOUT", "EAGAIN", "EBUSY", "EINTR", "ENFILE", "EMFILE", "ENOMEM", "ENOLINK"),
        *("ENETDOWN", "ENETUNREACH", "ENETRESET", "EHOSTDOWN", "EHOSTUNREACH", "EREMOTEIO", "ENOTCONN", "ESHUTDOWN"),
        *("ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "ENOSPC", "EDQUOT"),
    )
    if (number := getattr(errno, name, None)) is not None
)
"""What a disk, a mounted file server or a busy machine may report for a moment."""


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed later.

    >>> is_transient(OSError(errno.EIO, "Input/output error"))
    True
    >>> is_transient(FileNotFoundError(errno.ENOENT, "No such file"))
    False
    """
    return isinstance(error, OSError) and error.errno in _TRANSIENT
