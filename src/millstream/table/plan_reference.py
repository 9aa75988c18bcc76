"""References to stored plans: in a file, or in memory."""

from __future__ import annotations

from typing import Any

from millstream.graph.site import refuse
from millstream.pyflink_names import add_pyflink_names
from millstream.table.compiled_plan import read_plan

__all__ = ["BytesContentPlanReference", "FilePlanReference", "JsonContentPlanReference", "PlanReference"]


class PlanReference:
    """A reference to a plan.

    >>> PlanReference.from_file("plan.json").get_file()
    'plan.json'
    """

    def __init__(self, j_plan_reference: Any) -> None:
        if not isinstance(j_plan_reference, str | bytes):
            raise refuse("PlanReference: make one by from_file(), from_json_string() or from_smile_bytes()")
        self._content = j_plan_reference

    def _read(self) -> tuple[str, str]:
        """The text of the plan, and its name in errors."""
        raise NotImplementedError

    @staticmethod
    def from_file(path: str) -> FilePlanReference:
        """A plan in a file."""
        return FilePlanReference(str(path))

    @staticmethod
    def from_json_string(json_string: str) -> JsonContentPlanReference:
        """A plan as JSON."""
        return JsonContentPlanReference(json_string)

    @staticmethod
    def from_smile_bytes(smile_bytes: bytes) -> BytesContentPlanReference:
        """A plan as bytes."""
        return BytesContentPlanReference(smile_bytes)


class FilePlanReference(PlanReference):
    """A plan in a file."""

    def get_file(self) -> str:
        """The file."""
        return str(self._content)

    def _read(self) -> tuple[str, str]:
        return read_plan(self.get_file()), f"plan file '{self.get_file()}'"


class JsonContentPlanReference(PlanReference):
    """A plan as JSON."""

    def get_content(self) -> str:
        """The JSON."""
        return str(self._content)

    def _read(self) -> tuple[str, str]:
        return self.get_content(), "the plan"


class BytesContentPlanReference(PlanReference):
    """A plan as bytes."""

    def get_content(self) -> bytes:
        """The bytes."""
        assert isinstance(self._content, bytes)
        return self._content

    def _read(self) -> tuple[str, str]:
        try:
            return self.get_content().decode(), "the plan"
        except UnicodeDecodeError:
            raise refuse("the bytes are not a plan: Smile is not available. Pass those of JSON") from None


add_pyflink_names(globals())
