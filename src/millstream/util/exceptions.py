"""PyFlink's exceptions, with the meaning they have in Millstream.

A program that catches PyFlink's `TableException` catches errors of a table or a statement here. A catalog's refusal has
the class that PyFlink's catalog raises; all of them are ProgramErrors.
"""

from __future__ import annotations

from millstream.errors import MillstreamError, ProgramError
from millstream.pyflink_names import add_pyflink_names

__all__ = [
    "CatalogException",
    "DatabaseAlreadyExistException",
    "DatabaseNotEmptyException",
    "DatabaseNotExistException",
    "FunctionAlreadyExistException",
    "FunctionNotExistException",
    "JavaException",
    "ModelAlreadyExistException",
    "ModelNotExistException",
    "PartitionAlreadyExistsException",
    "PartitionNotExistException",
    "PartitionSpecInvalidException",
    "TableAlreadyExistException",
    "TableException",
    "TableNotExistException",
    "TableNotPartitionedException",
]

JavaException = MillstreamError
TableException = ProgramError


class CatalogException(ProgramError):
    """A catalog refuses a request."""


class DatabaseAlreadyExistException(CatalogException):
    """A catalog has a database of that name already."""


class DatabaseNotEmptyException(CatalogException):
    """A database that was to be dropped has tables or functions."""


class DatabaseNotExistException(CatalogException):
    """A catalog has no database of that name."""


class FunctionAlreadyExistException(CatalogException):
    """A database has a function of that name already."""


class FunctionNotExistException(CatalogException):
    """A database has no function of that name."""


class PartitionAlreadyExistsException(CatalogException):
    """A table has that partition already."""


class PartitionNotExistException(CatalogException):
    """A table has no such partition."""


class PartitionSpecInvalidException(CatalogException):
    """A partition is named by columns that the table is not partitioned by."""


class TableAlreadyExistException(CatalogException):
    """A database has a table or view of that name already."""


class TableNotExistException(CatalogException):
    """A database has no table or view of that name."""


class ModelAlreadyExistException(CatalogException):
    """A database has a model of that name already."""


class ModelNotExistException(CatalogException):
    """A database has no model of that name."""


class TableNotPartitionedException(CatalogException):
    """A partition was requested of a table without partitions."""


add_pyflink_names(globals())
