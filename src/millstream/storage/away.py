"""Which errors of the operating system say that a file cannot be reached just now, and nothing about the file."""

from __future__ import annotations

import errno

__all__ = ["is_away"]

_AWAY = frozenset(
    number
    for name in (
        *("EIO", "ESTALE", "ETIMEDOUT", "EAGAIN", "EBUSY", "EINTR", "ENFILE", "EMFILE", "ENOMEM", "ENOLINK"),
        *("ENETDOWN", "ENETUNREACH", "ENETRESET", "EHOSTDOWN", "EHOSTUNREACH", "EREMOTEIO", "ENOTCONN", "ESHUTDOWN"),
        *("ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "ENOSPC", "EDQUOT"),
    )
    if (number := getattr(errno, name, None)) is not None
)
"""What a disk, a mounted file server or a busy machine says that may be over in a moment. No other error is."""


def is_away(error: BaseException) -> bool:
    """Whether the same call may succeed later.

    >>> is_away(OSError(errno.EIO, "Input/output error")), is_away(FileNotFoundError(errno.ENOENT, "No such file"))
    (True, False)
    """
    return isinstance(error, OSError) and error.errno in _AWAY
