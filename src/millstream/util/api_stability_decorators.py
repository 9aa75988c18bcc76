"""PyFlink's decorators for the stability of a name: they add it to the documentation, and change nothing else."""

from __future__ import annotations

from typing import Any, TypeVar

from millstream.pyflink_names import add_pyflink_names

__all__ = ["BaseAPIStabilityDecorator", "Deprecated", "Experimental", "Internal", "Public", "PublicEvolving"]

T = TypeVar("T")


class BaseAPIStabilityDecorator:
    """Adds a sentence to the documentation of a class or function."""

    sentence = ""

    def __call__(self, func_or_cls: T) -> T:
        """The same class or function."""
        documented: Any = func_or_cls
        documented.__doc__ = f"{(documented.__doc__ or '').rstrip()}\n\n.. note:: {self.sentence}\n".lstrip()
        return func_or_cls


class Deprecated(BaseAPIStabilityDecorator):
    """Use something else."""

    def __init__(self, since: str | None = None, detail: str | None = None) -> None:
        parts = ["Deprecated", f" since {since}" if since else "", f": {detail}" if detail else ""]
        self.sentence = "".join(parts)


class Experimental(BaseAPIStabilityDecorator):
    """May change at any time."""

    sentence = "This API is experimental and may change."


class Internal(BaseAPIStabilityDecorator):
    """Not for programs."""

    sentence = "This is an internal API."


class PublicEvolving(BaseAPIStabilityDecorator):
    """May change from one version to the next."""

    sentence = "This API is evolving and may change between versions."


class Public(BaseAPIStabilityDecorator):
    """Stays as it is."""

    sentence = "This API is stable."


add_pyflink_names(globals())
