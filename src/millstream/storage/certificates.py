"""Detects whether a client rejected a server's certificate, and the reason, as worded by Python's TLS.

A rejected certificate is not transient: the server does not match its address, or the signing authority is unknown. So
the error is reported at once and never retried.
"""

from __future__ import annotations

import ssl

__all__ = ["certificate_refusal"]

_CAUSES_MAX = 20


def certificate_refusal(error: BaseException | None) -> str | None:
    """The reason why a server's certificate was rejected, if the error or one of its causes is a rejected certificate.

    >>> certificate_refusal(ConnectionError("reset"))
    """
    for _ in range(_CAUSES_MAX):
        if error is None:
            return None
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = error.verify_message.rstrip(".")
            return f"the certificate of the server there is not accepted: {reason}"
        error = _behind(error)
    return None


def _behind(error: BaseException) -> BaseException | None:
    """The error wrapped by a client's error; clients use different attributes."""
    for name in ("original_exception", "exception", "reason"):
        inner = getattr(error, name, None)
        if isinstance(inner, BaseException):
            return inner
    inner = error.args[0] if error.args else None
    return inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__
