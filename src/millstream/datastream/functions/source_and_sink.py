"""Sources and sinks in the form of older PyFlink programs: a function object passed to `add_source`/`add_sink`.

In PyFlink these wrap an object of Flink's JVM. Here they wrap a Python source or sink of
`millstream.connectors.contracts`; a Java class name is rejected, with a replacement in the message.
"""

from __future__ import annotations

from typing import Any

from millstream.connectors import contracts
from millstream.errors import NotAvailableError

__all__ = ["JavaFunctionWrapper", "SinkFunction", "SourceFunction"]


class JavaFunctionWrapper:
    """Holds the Python connector in place of PyFlink's JVM object."""

    def __init__(self, j_function: Any) -> None:
        if isinstance(j_function, str):
            raise NotAvailableError(
                f"Java class {j_function!r} cannot be loaded: Millstream has no Flink JVM. Use a connector of "
                "millstream.datastream.connectors, or write one: subclass PythonSource or TwoPhaseSink."
            )
        self._connector = j_function

    def get_java_function(self) -> Any:
        raise NotAvailableError(
            f"{type(self).__name__}.get_java_function: Millstream has no Flink JVM, so there is no Java object to "
            "return. Pass the Python object itself to add_source, from_source, add_sink or sink_to."
        )


class SourceFunction(JavaFunctionWrapper):
    """A Python source for `StreamExecutionEnvironment.add_source`."""

    def __init__(self, source_func: contracts.Source | str) -> None:
        super().__init__(source_func)


class SinkFunction(JavaFunctionWrapper):
    """A Python sink for `DataStream.add_sink`."""

    def __init__(self, sink_func: contracts.Sink | str) -> None:
        super().__init__(sink_func)
