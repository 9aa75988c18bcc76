"""The result of a job that ran to its end: its id, its run time, its accumulators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.common.job_id import JobID
from millstream.common.utils import refuse_java
from millstream.errors import ProgramError
from millstream.pyflink_names import add_pyflink_names

__all__ = ["JobExecutionResult"]


class JobExecutionResult:
    """The end of a job.

    >>> result = JobExecutionResult(job_id=JobID("0" * 32), net_runtime_ms=1500, accumulators={"lines": 3})
    >>> result.get_net_runtime(), result.get_accumulator_result("lines")
    (1500, 3)
    """

    def __init__(
        self,
        j_job_execution_result: Any = None,
        *,
        job_id: JobID | None = None,
        net_runtime_ms: int = 0,
        accumulators: Mapping[str, Any] | None = None,
    ) -> None:
        refuse_java(
            j_job_execution_result, "JobExecutionResult(j_job_execution_result)", "use the result of env.execute()"
        )
        self._job_id = job_id
        self._net_runtime_ms = net_runtime_ms
        self._accumulators = dict(accumulators or {})

    def get_job_id(self) -> JobID:
        """The job's id."""
        if self._job_id is None:
            raise ProgramError("this JobExecutionResult was made without a job. Use the result of env.execute().")
        return self._job_id

    def get_net_runtime(self) -> int:
        """How long the job ran, in milliseconds."""
        return self._net_runtime_ms

    def get_accumulator_result(self, accumulator_name: str) -> Any:
        """The final value of an accumulator or metric."""
        if accumulator_name not in self._accumulators:
            names = ", ".join(sorted(self._accumulators)) or "none"
            raise ProgramError(f"accumulator {accumulator_name!r} does not exist. The job has: {names}.")
        return self._accumulators[accumulator_name]

    def get_all_accumulator_results(self) -> dict[str, Any]:
        """All final values by name."""
        return dict(self._accumulators)

    def __repr__(self) -> str:
        return f"<JobExecutionResult of {self._job_id}: {self._net_runtime_ms} ms>"


add_pyflink_names(globals())
