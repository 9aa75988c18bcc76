"""Built-in retry predicates.

The program curries `exception_type_predicate`: `lambda e: exception_type_predicate(e, TimeoutError)`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["empty_result_predicate", "exception_type_predicate", "has_exception_predicate"]


def empty_result_predicate(result: list[Any] | None) -> bool:
    """Retries if the result is empty.

    >>> empty_result_predicate([]), empty_result_predicate([1])
    (True, False)
    """
    return not result


def has_exception_predicate(error: Exception | None) -> bool:
    """Retries on any error."""
    return error is not None


def exception_type_predicate(error: Exception, expected_error_type: type[Exception]) -> bool:
    """Retries on errors of this type.

    >>> exception_type_predicate(KeyError("k"), LookupError)
    True
    """
    return isinstance(error, expected_error_type)
