"""`millstream savepoint`, `stop`, `cancel`, `rescale`, `fork`: the declarations of their command lines."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["add_snapshot_commands"]

Job = Annotated[
    str, typer.Argument(metavar="JOB", help="A job's store, or its name or id as `millstream list` shows it.")
]
Root = Annotated[
    str | None, typer.Option(metavar="DIR", help="The folder of stores to find it in, if not ./.millstream.")
]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait until it is done.")]


def add_snapshot_commands(app: typer.Typer) -> None:
    """Add the commands to `millstream`."""
    for command in (savepoint, stop, cancel, rescale, fork):
        app.command()(command)


def savepoint(
    job: Job,
    to: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Copy everything into a new folder in DIR; default: by reference."),
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Its name; default: a new one.")] = None,
    dispose: Annotated[
        str | None, typer.Option(metavar="NAME", help="Remove the savepoint NAME of this job instead.")
    ] = None,
    root: Root = None,
) -> None:
    """Save the newest epoch of a job, running or not. Prints the argument of `run --from`."""
    from millstream.cli.savepoint import absolute, dispose_savepoint, take_savepoint

    if dispose is not None:
        if to is not None or name is not None:
            raise typer.BadParameter("--dispose cannot be combined with other options")
        raise typer.Exit(dispose_savepoint(job, root, dispose))
    raise typer.Exit(take_savepoint(job, root, None if to is None else absolute(to), name))


def stop(
    job: Job,
    drain: Annotated[
        bool, typer.Option("--drain", help="End event time first: windows emit their results, the job is finished.")
    ] = False,
    saves: Annotated[bool, typer.Option("--savepoint", help="Save its last epoch, by reference.")] = False,
    to: Annotated[str | None, typer.Option(metavar="DIR", help="Save its last epoch in a folder in DIR.")] = None,
    timeout: Timeout = 120.0,
    root: Root = None,
) -> None:
    """Stop a running job after its current epoch; it resumes from its store."""
    from millstream.cli.control import stop_job
    from millstream.cli.savepoint import absolute

    place = None if to is None else absolute(to)
    raise typer.Exit(stop_job(job, root, drain=drain, saves=saves or to is not None, to=place, timeout_s=timeout))


def cancel(job: Job, timeout: Timeout = 60.0, root: Root = None) -> None:
    """End a running job now. Its current epoch is dropped; committed epochs stay."""
    from millstream.cli.control import send_request

    raise typer.Exit(send_request(job, root, "cancel", {}, timeout))


def rescale(
    job: Job,
    parallelism: Annotated[int, typer.Argument(metavar="N", help="Subtasks of an operator from now on.")],
    timeout: Timeout = 60.0,
    root: Root = None,
) -> None:
    """Let a running job continue at another parallelism with its next epoch. No state is moved."""
    from millstream.cli.control import send_request

    raise typer.Exit(send_request(job, root, "rescale", {"parallelism": parallelism}, timeout))


def fork(
    snapshot: Annotated[
        str, typer.Argument(metavar="JOB[@EPOCH]", help="Where it begins: an epoch or savepoint of a job.")
    ],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="The name of the fork.")],
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="The store of the fork, if not .millstream/NAME.")
    ] = None,
    root: Root = None,
) -> None:
    """Prepare a second job that begins at a point of a first one, sharing its files. Prints its store."""
    from millstream.cli.fork import fork_job

    raise typer.Exit(fork_job(snapshot, root, name, store))
