"""`ModelDescriptor`: describes a machine learning model. Models themselves run as functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.graph.site import refuse
from millstream.pyflink_names import add_pyflink_names
from millstream.table.schema import Schema

__all__ = ["ModelDescriptor"]


class ModelDescriptor:
    """A model: its provider, its options, its input and output."""

    def __init__(
        self,
        j_model_descriptor: Any = None,
        *,
        options: Mapping[str, str] | None = None,
        input_schema: Schema | None = None,
        output_schema: Schema | None = None,
        comment: str | None = None,
    ) -> None:
        if j_model_descriptor is not None or options is None:
            raise refuse("ModelDescriptor: make one by ModelDescriptor.for_provider(name)….build()")
        self._options = dict(options)
        self._input_schema = input_schema
        self._output_schema = output_schema
        self._comment = comment

    @staticmethod
    def for_provider(provider: str) -> ModelDescriptor.Builder:
        """Starts the description of a model."""
        return ModelDescriptor.Builder().option("provider", provider)

    def get_options(self) -> dict[str, str]:
        """The options of the provider."""
        return dict(self._options)

    def get_input_schema(self) -> Schema | None:
        """The input columns."""
        return self._input_schema

    def get_output_schema(self) -> Schema | None:
        """The output columns."""
        return self._output_schema

    def get_comment(self) -> str | None:
        """The model's comment."""
        return self._comment

    class Builder:
        """Collects a model's description."""

        def __init__(self, j_builder: Any = None) -> None:
            self._options: dict[str, str] = {}
            self._input_schema: Schema | None = None
            self._output_schema: Schema | None = None
            self._comment: str | None = None

        def input_schema(self, input_schema: Schema) -> ModelDescriptor.Builder:
            """Sets the input columns."""
            self._input_schema = input_schema
            return self

        def output_schema(self, output_schema: Schema) -> ModelDescriptor.Builder:
            """Sets the output columns."""
            self._output_schema = output_schema
            return self

        def option(self, key: str, value: Any) -> ModelDescriptor.Builder:
            """Sets an option of the provider."""
            self._options[key] = str(value)
            return self

        def comment(self, comment: str) -> ModelDescriptor.Builder:
            """Sets the model's comment."""
            self._comment = comment
            return self

        def build(self) -> ModelDescriptor:
            """The description."""
            return ModelDescriptor(
                options=self._options,
                input_schema=self._input_schema,
                output_schema=self._output_schema,
                comment=self._comment,
            )


add_pyflink_names(globals())
