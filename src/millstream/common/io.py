"""InputFormat: PyFlink's name for Java readers of files."""

from __future__ import annotations

from typing import Any

from millstream.common.utils import JavaObjectWrapper, refuse_java
from millstream.pyflink_names import add_pyflink_names

__all__ = ["InputFormat"]


class InputFormat(JavaObjectWrapper):
    """A reader of records. PyFlink's wrap Java; here readers are sources in Python."""

    def __init__(self, j_input_format: Any = None) -> None:
        refuse_java(j_input_format, "InputFormat(j_input_format)", "use FileSource, or write a source in Python")
        super().__init__()


add_pyflink_names(globals())
