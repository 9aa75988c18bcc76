"""A `with` block for programs that are rejected at their own line."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from millstream.errors import ProgramError

__all__ = ["Refused"]


class Refused:
    """Expects a ProgramError that points at the line inside the `with` block, and whose text contains `words`."""

    def __init__(self, *words: str, kind: type[ProgramError] = ProgramError) -> None:
        self.words, self.kind = words, kind

    def __enter__(self) -> None:
        frame = inspect.currentframe()
        assert frame is not None and frame.f_back is not None
        self.expected = f"{Path(frame.f_back.f_code.co_filename).name}:{frame.f_back.f_lineno + 1}"

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        assert isinstance(error, self.kind), f"expected {self.kind.__name__}, found {error!r}"
        assert error.at == self.expected, error.at
        assert str(error).endswith(f"({error.at})")
        for word in self.words:
            assert word in str(error), str(error)
        return True
