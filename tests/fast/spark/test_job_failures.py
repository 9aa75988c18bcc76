"""The error messages of failed Spark jobs."""

from __future__ import annotations

from millstream.spark.job_failures import job_failure

FULL = """An error occurred while calling o424.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 111.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 111.0 (TID 188) (localhost driver): java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\tat java.base/java.lang.Thread.run(Thread.java:840)
\tSuppressed: java.io.IOException: No space left on device
\t\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t\t... 13 more

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.handleTaskSetFailed(DAGScheduler.scala:2054)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t... 1 more
"""
PYTHON = """An error occurred while calling o4.collectToPython.
: org.apache.spark.SparkException: Lost task 0.3: org.apache.spark.api.python.PythonException: Traceback (most recent \
call last):
  File "worker.py", line 7, in main
    at = 1 / 0
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner.run(PythonRunner.scala:1)
"""


def test_a_full_disk_of_spark_is_reported_in_one_line_with_its_folder_and_advice() -> None:
    text = str(job_failure(RuntimeError(FULL), "/scratch"))
    assert "\n" not in text and "full (spark.local.dir: /scratch, on the machine of the task). Free some space" in text
    assert "Lost task 0.3 in stage 111.0" in text


def test_java_frames_are_removed_and_python_frames_stay() -> None:
    lines = str(job_failure(RuntimeError(PYTHON), "/scratch")).splitlines()
    assert lines[1:] == [
        '  File "worker.py", line 7, in main',
        "    at = 1 / 0",
        "ZeroDivisionError: division by zero",
    ]


def test_an_error_without_java_frames_is_unchanged() -> None:
    assert job_failure(RuntimeError("the application has ended\nask again"), "/scratch") is None
