"""Errors of the planner, told with the line of the program that called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millstream.errors import MillstreamError, NotYetError, ProgramError, SqlError
from millstream.graph.site import UNKNOWN_SITE, here

__all__ = ["at_users_line"]


@contextmanager
def at_users_line() -> Iterator[None]:
    """Give errors of the program that have no line yet the line of the caller."""
    try:
        yield
    except SqlError as error:
        if error.at is not None:
            raise
        raise SqlError(error.message, line=error.line, column=error.column, at=_place()) from error.__cause__
    except (ProgramError, NotYetError) as error:
        if error.at is not None:
            raise
        _mark(error)
        raise


def _place() -> str | None:
    site = here()
    return None if site == UNKNOWN_SITE else str(site)


def _mark(error: MillstreamError) -> None:
    """Write the place into an error, whatever its class's constructor wants."""
    error.at = _place()
    if error.at is not None:
        error.args = (f"{error.message} ({error.at})", *error.args[1:])
