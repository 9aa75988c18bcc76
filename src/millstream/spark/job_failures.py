"""Reduces the error of a failed Spark job to Spark's message; the Java stack traces are in the JVM's log."""

from __future__ import annotations

import re

__all__ = ["SparkJobError", "job_failure"]

_JAVA = re.compile(r"\t+(at |\.\.\. \d+ (more|common)|Suppressed: |Caused by: )|Caused by: |Driver stacktrace:|\s*$")
_CALL = "An error occurred while calling "
_FULL = "java.io.IOException: No space left on device"


class SparkJobError(RuntimeError):
    """A Spark job failed for a reason within Spark."""


def job_failure(error: BaseException, folder: str) -> SparkJobError | None:
    """The failure with Spark's message only; None if there is nothing to omit. `folder`: Spark's temporary folder, as
    far as the driver knows.

    >>> text = "An error occurred while calling o4.collect.\\n: java.io.IOException: lost\\n\\tat java.base/Thread"
    >>> job_failure(RuntimeError(text), "/scratch")
    SparkJobError('java.io.IOException: lost')
    """
    lines = str(error).splitlines()
    if not any(line.startswith("\tat ") for line in lines):
        return None
    message = [line.removeprefix(": ") for line in lines if not _JAVA.match(line) and not line.startswith(_CALL)]
    text = "\n".join(message) or type(error).__name__
    if _FULL in text:
        text = (
            f"the disk of Spark's temporary files is full (spark.local.dir: {folder}, on the machine of the task). "
            f"Free some space there, or set spark.local.dir to another folder. Spark's message: {text}"
        )
    return SparkJobError(text)
