"""What a failure of an epoch means: what the user is told, and whether another try could mend it. Pure, but for the
look into the store for an epoch that is still whole.

A failure of the user's code is the job's: the restart strategy decides. Everything else that fails an epoch (it took
too long, the store or a machine failed) is a failed checkpoint first, and may be tolerated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from millstream.checkpoint.manifest import ManifestLog
from millstream.errors import JobFailedError, MillstreamError
from millstream.jobs.damage import whole_epoch_advice
from millstream.runtime.failure import UserFailureError
from millstream.storage.store import Store

__all__ = ["JudgedFailure", "judge"]

# Failures that another try cannot mend: the program is wrong, not the world.
_OWN_KINDS = frozenset(
    {
        "ProgramError",
        "StateSchemaError",
        "TypeMismatchError",
        "NotYetError",
        "NotAvailableError",
        "ConfigurationError",
    }
)


@dataclass(frozen=True)
class JudgedFailure:
    """`error` is what the job raises if it ends with this failure; `output` what the task printed before."""

    error: BaseException
    reason: str
    retryable: bool
    tolerable: bool
    output: tuple[list[str], ...] = ()


def judge(error: BaseException, log: ManifestLog, store: Store) -> JudgedFailure:
    """What became of an epoch that ended with `error`."""
    if not isinstance(error, UserFailureError):
        reason = str(error) or type(error).__name__
        return JudgedFailure(error, reason, retryable=not isinstance(error, MillstreamError), tolerable=True)
    report = error.report
    if report.error == "StoreDamagedError":
        report = replace(report, message=report.message + whole_epoch_advice(report.message, log, store))
    reason = f"{report.error}: {report.message}"
    failed = JobFailedError(f"'{report.operator}' failed: {reason}", report=report.text(), at=report.site)
    output = tuple(list(line) for line in report.output)
    return JudgedFailure(failed, reason, report.error not in _OWN_KINDS, tolerable=False, output=output)
