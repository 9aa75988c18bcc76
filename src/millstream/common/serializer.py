"""TypeSerializer: PyFlink's contract for writing values of a user's own type to bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import IO, Generic, TypeVar

__all__ = ["TypeSerializer"]

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Writes and reads one kind of value; instances of the same class are equal."""

    @abstractmethod
    def serialize(self, element: T, stream: IO[bytes]) -> None:
        """Writes the value to the stream."""

    @abstractmethod
    def deserialize(self, stream: IO[bytes]) -> T:
        """Reads a value from the stream."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return type(self).__name__


class VoidNamespaceSerializer(TypeSerializer[bytes]):
    """Writes nothing: the serializer for state without a namespace.

    >>> import io
    >>> stream = io.BytesIO()
    >>> VoidNamespaceSerializer().serialize(b"", stream)
    >>> stream.getvalue()
    b''
    """

    def serialize(self, element: bytes, stream: IO[bytes]) -> None:
        stream.write(b"")

    def deserialize(self, stream: IO[bytes]) -> bytes:
        return b""
