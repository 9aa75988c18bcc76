"""JSON functions of `Expression`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.expressions.data_type import DataType
from millstream.table.expression_methods.syntax_holder import SyntaxHolder, node_of
from millstream.table.expression_methods.units import (
    JsonExistsOnError,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
)

if TYPE_CHECKING:
    from millstream.table.expression import Expression

__all__ = ["JsonMethods"]


class JsonMethods(SyntaxHolder):
    """Functions of JSON strings."""

    def is_json(self, json_type: JsonType | None = None) -> Expression[Any]:
        """Whether the string is valid JSON, optionally restricted to an object, an array or a scalar."""
        return self._call(f"IS JSON {'VALUE' if json_type is None else json_type.name}")

    def json_exists(self, path: str, on_error: JsonExistsOnError | None = None) -> Expression[Any]:
        """Whether a path exists."""
        return self._call("JSON_EXISTS", path, **_words(on_error=on_error))

    def json_value(
        self,
        path: str,
        returning_type: DataType | None = None,
        on_empty: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_empty: Any = None,
        on_error: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_error: Any = None,
    ) -> Expression[Any]:
        """The scalar at a path, as a string or another type."""
        options: dict[str, Any] = {} if returning_type is None else {"returning": returning_type}
        for option, act, default in (
            ("on_empty", on_empty, default_on_empty),
            ("on_error", on_error, default_on_error),
        ):
            if act is not JsonValueOnEmptyOrError.NULL:
                value = node_of(default) if act is JsonValueOnEmptyOrError.DEFAULT else None
                options[option] = (act.name, value)
        return self._call("JSON_VALUE", path, **options)

    def json_query(
        self,
        path: str,
        wrapping_behavior: JsonQueryWrapper = JsonQueryWrapper.WITHOUT_ARRAY,
        on_empty: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
        on_error: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
    ) -> Expression[Any]:
        """The object or array at a path, as a JSON string."""
        words = _words(wrapper=wrapping_behavior, on_empty=on_empty, on_error=on_error)
        words["wrapper"] = words["wrapper"].removesuffix("_ARRAY")
        return self._call("JSON_QUERY", path, **words)

    def json_quote(self) -> Expression[Any]:
        """Quotes a string as a JSON string."""
        return self._call("JSON_QUOTE")

    def json_unquote(self) -> Expression[Any]:
        """Unquotes a JSON string."""
        return self._call("JSON_UNQUOTE")

    def json_length(self, path: Any = None) -> Expression[Any]:
        """The number of elements at a path."""
        return self._call("JSON_LENGTH", path)

    def json_type(self, path: Any = None) -> Expression[Any]:
        """The type of the value at a path."""
        return self._call("JSON_TYPE", path)


def _words(**options: Any) -> dict[str, str]:
    """Enum members by name; None is omitted."""
    return {name: option.name.replace("EMPTY_", "EMPTY ") for name, option in options.items() if option is not None}
