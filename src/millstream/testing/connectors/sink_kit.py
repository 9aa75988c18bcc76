"""Checks a sink's contract: every record appears once, despite any crash, and not before its commit.

Each scene writes to its own target and fails in its own way; at the end a reader's result must equal the written
records. A sink that promises at-least-once may duplicate a record, but must not lose one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Sink
from millstream.datastream.functions.source_and_sink import JavaFunctionWrapper
from millstream.storage.local import LocalStore
from millstream.testing.connectors.clear_errors import Broken, check_error, check_secrets
from millstream.testing.connectors.rehearsal import Rehearsal
from millstream.testing.connectors.report import Checklist, Report, Skipped
from millstream.testing.connectors.sink_crashes import check_crashes
from millstream.testing.connectors.sink_drivers import check_drivers
from millstream.testing.connectors.sink_in_a_job import check_in_a_job
from millstream.testing.connectors.sink_scene import SinkTrial

__all__ = ["check_sink"]


def check_sink(
    make: Callable[[str], Any],
    read: Callable[[str], Sequence[Any]],
    *,
    records: Sequence[Any],
    type_info: TypeInformation | None = None,
    expected: Callable[[Sequence[Any]], Sequence[Any]] = list,
    broken: Sequence[Broken] = (),
    secrets: Sequence[str] = (),
    left_out: Mapping[str, str] | None = None,
    crash_points: int = 25,
    session: Any = None,
    raises: bool = True,
) -> Report:
    """Test every promise of a sink; ConnectorCheckError with the report if one is broken.

    `make(place)` creates a sink that writes to `place`, a short new name of letters and digits that denotes a table, a
    topic or a folder; called again with the same name it creates the sink of another process. `read(place)` returns the
    records a reader sees there, empty if there are none yet. `records`: a dozen or more distinct records of
    `type_info`. `expected(written)`: the records a reader must see after these were written in this order, if not
    exactly these (a table with a key shows the last of each). `broken`, `secrets` and `left_out` are as in
    `check_source`. An example is in docs/extend/write-a-sink.md.
    """
    if len(records) < 6:
        raise ValueError(f"check_sink: {len(records)} records are too few to be lost. Give a dozen that differ")

    def engine(place: str) -> Sink:
        sink = make(place)
        sink = sink._connector if isinstance(sink, JavaFunctionWrapper) else sink
        if not isinstance(sink, Sink):
            raise TypeError(
                f"check_sink: make() gave {sink!r}, which is not a sink. Give a TwoPhaseSink, or one that is built"
            )
        return sink

    example = engine("example")
    checks = Checklist(type(example).__name__, example.guarantee, left_out or {})
    with tempfile.TemporaryDirectory(prefix="millstream-kit-") as folder:
        trial = SinkTrial(
            make=engine,
            read=read,
            records=list(records),
            type_info=type_info,
            expected=expected,
            is_exact=example.guarantee == "exactly-once",
            store=LocalStore(Path(folder), fsync=False),
            session=session,
            crash_points=crash_points,
        )
        checks.clean_up = trial.close
        if _check_steps(checks, trial):
            check_crashes(checks, trial)
            check_drivers(checks, trial)
            check_in_a_job(checks, trial)
        for one in broken:
            name = "-".join(one.what.lower().split())
            checks.run(name, f"with {one.what} it says so", _error_of(one, trial, secrets))
        if secrets:
            checks.run("secrets", "no secret is shown or stored", lambda: check_secrets(secrets, _shown(trial)))
    return checks.report(raises)


def _check_steps(checks: Checklist, trial: SinkTrial) -> bool:
    """One run without failures, checked after each step."""
    first, second = trial.halves()

    def plain() -> str:
        scene = trial.scene()
        scene.job.run(first)
        scene.check(so_far=True)
        scene.job.run(second)
        scene.end()
        return f"{len(trial.records)} records"

    def unseen() -> str:
        scene = trial.scene()
        staged = scene.job.stage(first)
        scene.must_be_empty("after a task has staged its records, before anything is committed")
        scene.job.decide(staged, first)
        scene.must_be_empty("after the manifest is written, before commit()")
        scene.job.commit()
        scene.end()
        return ""

    def nothing() -> str:
        scene = trial.scene()
        scene.job.run([])
        scene.must_be_empty("after an epoch without records")
        scene.job.run(first)
        scene.job.run([])
        scene.end()
        return ""

    def rescaled() -> str:
        scene = trial.scene()
        for number, parallelism in enumerate((2, 3, 1)):
            scene.job.parallelism = parallelism
            scene.job.replace_driver()
            scene.job.run(trial.records[number::3])
        scene.end()
        return "from 2 to 3 to 1"

    if not checks.run("plain", "written records are visible", plain):
        return False
    checks.run("unseen", "nothing is visible before the commit", unseen if trial.is_exact else _not_promised)
    checks.run("empty", "an epoch without records publishes nothing", nothing)
    checks.run("rescale", "a restart at another parallelism loses and doubles nothing", rescaled)
    return True


def _not_promised() -> str:
    raise Skipped("it promises at-least-once: records may be visible at once")


def _error_of(broken: Broken, trial: SinkTrial, secrets: Sequence[str]) -> Callable[[], str]:
    def use(sink: Any) -> None:
        engine = sink._connector if isinstance(sink, JavaFunctionWrapper) else sink
        job = Rehearsal(lambda: engine, trial.store, trial.type_info, trial.session)
        try:
            job.run(trial.records)
            job.finish()
        finally:
            job.close()

    return lambda: check_error(broken, use, secrets)


def _shown(trial: SinkTrial) -> dict[str, str]:
    scene = trial.scene()
    scene.job.run(trial.records)
    sink = scene.job.actor
    return {
        "describe()": f"{sink.sink.describe()} {sink.opened.describe()}",
        "repr()": f"{sink.sink!r} {sink.opened!r}",
        "staged values (they are stored)": repr(scene.job.commits) + repr(scene.job.pending),
    }
