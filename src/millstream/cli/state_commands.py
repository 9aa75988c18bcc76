"""`millstream state ls|show|diff`: the declarations of their command lines. `cli.state` is imported when one is
called."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["state_app"]

state_app = typer.Typer(no_args_is_help=True, help="Read the state of a job, at any retained epoch.")

Snapshot = Annotated[
    str, typer.Argument(metavar="STORE[@EPOCH]", help="A job's store (its newest epoch), an epoch, or a savepoint.")
]
Json = Annotated[bool, typer.Option("--json", help="For machines: one JSON object per line.")]
ReadOnly = Annotated[
    bool, typer.Option("--read-only", help="Write nothing, not even a lease: the job may then remove the epoch.")
]


@state_app.command("ls")
def list_states(snapshot: Snapshot, as_json: Json = False, read_only: ReadOnly = False) -> None:
    """List operators and their states: kinds, types and sizes."""
    from millstream.cli.state import show_catalog

    raise typer.Exit(show_catalog(snapshot, as_json=as_json, read_only=read_only))


@state_app.command("show")
def show(
    snapshot: Snapshot,
    operator: Annotated[str, typer.Argument(help="Its uid or its name.")],
    state: Annotated[str, typer.Argument(help="The state's name; 'event timers' and similar are states too.")],
    key: Annotated[str | None, typer.Option(metavar="K", help="Only this key.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", help="The maximal number of rows; 0: all. [default: 100, for machines all]"),
    ] = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="For spreadsheets.")] = False,
    read_only: ReadOnly = False,
) -> None:
    """Print the rows of a state."""
    from millstream.cli.state import show_rows

    code = show_rows(
        snapshot, operator, state, key=key, limit=limit, as_json=as_json, as_csv=as_csv, read_only=read_only
    )
    raise typer.Exit(code)


@state_app.command("diff")
def diff(
    before: Annotated[str, typer.Argument(metavar="STORE@A", help="The older snapshot.")],
    after: Annotated[str, typer.Argument(metavar="STORE@B", help="The newer one, of the same job or another.")],
    operator: Annotated[str | None, typer.Argument(help="Only this operator (uid or name).")] = None,
    state: Annotated[str | None, typer.Argument(help="This state: print its rows.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", help="The maximal number of rows; 0: all. [default: 100, for machines all]"),
    ] = None,
    as_json: Json = False,
    read_only: ReadOnly = False,
) -> None:
    """Print the differences between two snapshots: counts per state, or the rows of one."""
    from millstream.cli.state import show_difference

    code = show_difference(before, after, operator, state, limit=limit, as_json=as_json, read_only=read_only)
    raise typer.Exit(code)
