"""Testing a program without Spark: scripted input, a job run in memory, one operator alone, a clock you turn.

    Script, CRASH, EPOCH, Watermark, Pause     input that says what happens, and when it goes wrong
    run, Result                                a whole job, in this process, with the real engine
    Collect, Collected                         a sink whose output the test reads
    OperatorHarness, HarnessSnapshot           one function, record by record, with its state and timers
    ManualClock                                processing time that moves only when told to

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
"""The name that a `HarnessSnapshot` had first."""
