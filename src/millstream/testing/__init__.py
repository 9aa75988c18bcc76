"""Tests programs without Spark: scripted input, a job run in memory, a single operator, a manual clock.

    Script, CRASH, EPOCH, Watermark, Pause     scripted input, including crashes and pauses
    run, Result                                a complete job, in this process, with the real engine
    Collect, Collected                         a sink whose output the test reads
    OperatorHarness, HarnessSnapshot           one function, record by record, with its state and timers
    ManualClock                                processing time that the test advances

Only Spark is left out: graph, stages, exchanges, epochs, manifests and publishing are what runs in production.
"""

from __future__ import annotations

from millstream.testing.collecting import Collect, Collected
from millstream.testing.harness_epochs import HarnessSnapshot
from millstream.testing.in_memory import Result, run
from millstream.testing.manual_clock import ManualClock
from millstream.testing.operator_harness import OperatorHarness
from millstream.testing.script import CRASH, EPOCH, Pause, Script, ScriptedCrash, Watermark

__all__ = [
    "CRASH",
    "EPOCH",
    "Collect",
    "Collected",
    "HarnessSnapshot",
    "ManualClock",
    "OperatorHarness",
    "Pause",
    "Result",
    "Script",
    "ScriptedCrash",
    "Snapshot",
    "Watermark",
    "run",
]

Snapshot = HarnessSnapshot
"""The former name of `HarnessSnapshot`."""
