"""A job's identity: 128 bits, written as 32 hexadecimal digits."""

from __future__ import annotations

import re
from typing import Any

from millstream.errors import ProgramError

__all__ = ["JobID"]

_SHAPE = re.compile(r"[0-9a-f]{32}")


class JobID:
    """Identifies one job for its whole lifetime, across restarts.

    >>> str(JobID("000000000000000000000000000000ff"))
    '000000000000000000000000000000ff'
    """

    __slots__ = ("_text",)

    def __init__(self, j_job_id: Any) -> None:
        # PyFlink passes a Java object here. An id needs only its string form.
        text = str(j_job_id).lower()
        if not _SHAPE.fullmatch(text):
            raise ProgramError(f"a job id is {j_job_id!r}, expected 32 hexadecimal digits. See `millstream list`.")
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"JobID({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, JobID) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)
