"""The `millstream` command and its subcommands.

This module only declares the command line. A command's code is imported when it is called, so that `--help` answers at
once: neither PySpark nor PyArrow is loaded for it.

Exit codes: 0 done, 1 the job or program failed, 2 the command line is wrong, 130 aborted by Ctrl-C.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.help_pages import show_flags_as_flags
from millstream.cli.program_arguments import ProgramCommand
from millstream.cli.query_commands import add_query_commands
from millstream.cli.snapshot_commands import add_snapshot_commands
from millstream.cli.state_commands import state_app

__all__ = ["app"]

app = typer.Typer(
    name="millstream",
    help="Stateful stream processing for Python: PyFlink's API and Flink's promises, on Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_versions(is_set: bool) -> None:
    if is_set:
        version()
        raise typer.Exit


@app.callback()
def millstream(
    prints_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_versions, is_eager=True, help="Print the versions, as `version` does."
        ),
    ] = False,
) -> None:
    """Stateful stream processing for Python: PyFlink's API and Flink's promises, on Apache Spark."""


@app.command(cls=ProgramCommand)
def run(
    script: Annotated[Path, typer.Argument(metavar="JOB.PY", help="The program, as `python JOB.PY` would run it.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGS", help="The program's own arguments; after `--` if an option has one of our names."
        ),
    ] = None,
    pyflink: Annotated[bool, typer.Option("--pyflink", help="Serve its `pyflink` imports: run it unmodified.")] = False,
    parallelism: Annotated[
        int | None, typer.Option("-p", "--parallelism", metavar="N", help="Subtasks of an operator.")
    ] = None,
    define: Annotated[
        list[str] | None,
        typer.Option("-D", metavar="KEY=VALUE", help="A setting; it overrides the program's own. Repeatable."),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Spark's master: spark://HOST:PORT, yarn, … [default: this machine's cores]"),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The job's store; resumes the job that is there."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--from",
            "-s",
            metavar="SNAPSHOT",
            help="Start from a job's store (where it ended), STORE@EPOCH, STORE@SAVEPOINT or a savepoint's folder; in "
            "the job's own store unless --store is set.",
        ),
    ] = None,
    drops: Annotated[
        bool,
        typer.Option("--allow-non-restored-state", "-n", help="Drop state for which the program has no operator."),
    ] = False,
    takes_over: Annotated[
        bool, typer.Option("--take-over", help="Take the job over from the driver that runs it, which then stops.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Lines instead of the live console.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show Millstream's own traceback of an error.")] = False,
) -> None:
    """Run a program. Ctrl-C finishes the running epoch and stops; a second Ctrl-C aborts."""
    from millstream.cli.run import RunRequest, run_program

    request = RunRequest(
        script=script,
        arguments=tuple(arguments or ()),
        pyflink=pyflink,
        parallelism=parallelism,
        definitions=tuple(define or ()),
        master=master,
        store=store,
        resume=resume,
        drops=drops,
        takes_over=takes_over,
        plain=plain,
        debug=debug,
    )
    raise typer.Exit(run_program(request))


@app.command()
def sql(
    files: Annotated[
        list[Path] | None, typer.Option("-f", "--file", metavar="FILE", help="Run a script of statements. Repeatable.")
    ] = None,
    first_files: Annotated[
        list[Path] | None,
        typer.Option("-i", "--init", metavar="FILE", help="Statements to run first: tables, settings. Repeatable."),
    ] = None,
    statements: Annotated[
        list[str] | None, typer.Option("-e", "--execute", metavar="SQL", help="Run these statements. Repeatable.")
    ] = None,
    define: Annotated[
        list[str] | None, typer.Option("-D", metavar="KEY=VALUE", help="A setting, like SET. Repeatable.")
    ] = None,
    store: Annotated[str | None, typer.Option(metavar="URL", help="The folder of the jobs' stores.")] = None,
    batch: Annotated[bool, typer.Option("--batch", help="Bounded tables, read to their end at once.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="INSERTs run in processes of their own, which outlive this one.")
    ] = False,
) -> None:
    """A terminal for SQL; with -f or -e it runs statements and ends. Ctrl-C ends the query, not the client."""
    from millstream.cli.sql_client.start import SqlRequest, run_sql

    request = SqlRequest(
        files=tuple(files or ()),
        first_files=tuple(first_files or ()),
        statements=tuple(statements or ()),
        definitions=tuple(define or ()),
        store=store,
        batch=batch,
        detach=detach,
    )
    raise typer.Exit(run_sql(request))


@app.command()
def pack(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="The archive, FILE.tar.gz.")] = Path(
        "environment.tar.gz"
    ),
    requirements: Annotated[
        Path | None,
        typer.Option("-r", "--requirement", metavar="FILE", help="Its packages. [default: the installed ones]"),
    ] = None,
    with_python: Annotated[
        bool, typer.Option("--with-python", help="The interpreter, too; refused if it cannot be moved.")
    ] = False,
) -> None:
    """Pack an environment for the executors of a cluster: packages with native code that they lack."""
    from millstream.cli.pack import pack_environment

    raise typer.Exit(pack_environment(output, requirements, with_python=with_python))


@app.command("list")
def list_(
    root: Annotated[
        str | None,
        typer.Argument(metavar="[ROOT]", help="A job's store, or a folder of stores. [default: ./.millstream]"),
    ] = None,
    snapshots: Annotated[
        bool, typer.Option("--snapshots", help="Their retained epochs, savepoints and forks.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines: one JSON object per line.")] = False,
) -> None:
    """List jobs and their progress. FAILED: its last run failed. INTERRUPTED: it was killed, and did not end."""
    from millstream.cli.listing import list_jobs

    raise typer.Exit(list_jobs(root, as_json=as_json, snapshots=snapshots))


@app.command()
def remove(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="JOB", help="Their stores, names or ids; one or more.")
    ] = None,
    unnamed: Annotated[
        bool, typer.Option("--unnamed", help="All stores of runs without --store below ./.millstream.")
    ] = False,
    root: Annotated[
        str | None, typer.Option(metavar="ROOT", help="The folder of stores. [default: ./.millstream]")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove stores of jobs that are not running: epochs, state and logs. Published output stays."""
    from millstream.cli.removal import remove_stores

    raise typer.Exit(remove_stores(tuple(names or ()), root, unnamed=unnamed, confirms=not yes))


app.add_typer(state_app, name="state")
add_snapshot_commands(app)
add_query_commands(app)


@app.command()
def verify(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A job's store, STORE@EPOCH, or a savepoint's folder.")],
    as_json: Annotated[bool, typer.Option("--json", help="For machines: one JSON object per line.")] = False,
) -> None:
    """Check all files that manifests name, and list the intact epochs. Exit code 1 if a file is damaged."""
    from millstream.cli.verify import verify_store

    raise typer.Exit(verify_store(path, as_json=as_json))


@app.command()
def sweep(
    job: Annotated[str, typer.Argument(metavar="STORE", help="The job's store, name or id.")],
    keep: Annotated[
        int | None,
        typer.Option("--keep", metavar="N", min=1, help="Remove epochs, too, except the newest N and those in use."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines: one JSON object per line.")] = False,
    root: Annotated[
        str | None, typer.Option(metavar="DIR", help="The folder of stores to find it in, if not ./.millstream.")
    ] = None,
) -> None:
    """Make room in a job's store: remove files that no retained epoch names. Also works on a full disk."""
    from millstream.cli.sweep import sweep_store

    raise typer.Exit(sweep_store(job, root, keep, dry_run=dry_run, as_json=as_json))


@app.command()
def checkpoints(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's store, name or id.")],
    epoch: Annotated[int | None, typer.Option("--epoch", metavar="E", help="This one, by operator and task.")] = None,
    last: Annotated[int | None, typer.Option("-n", metavar="N", help="Only the newest N.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines: one JSON object per line.")] = False,
) -> None:
    """Show the epochs a job retains: their durations, input and output, and a summary."""
    from millstream.cli.checkpoints import show_checkpoints

    raise typer.Exit(show_checkpoints(job, epoch=epoch, last=last, as_json=as_json))


@app.command()
def logs(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's store, name or id.")],
    lines: Annotated[int | None, typer.Option("-n", metavar="N", help="Only the last N lines.")] = None,
    follows: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new lines.")] = False,
    all_runs: Annotated[bool, typer.Option("--all", help="The logs of all runs, the oldest first.")] = False,
    errors: Annotated[bool, typer.Option("--errors", help="Only failures, with their tracebacks, and ends.")] = False,
    root: Annotated[
        str | None, typer.Option(metavar="DIR", help="The folder of stores to find it in, if not ./.millstream.")
    ] = None,
) -> None:
    """Print the log of a job's newest run: progress, failures with their tracebacks, how it ended."""
    from millstream.cli.logs import show_logs

    raise typer.Exit(show_logs(job, root, lines=lines, follows=follows, all_runs=all_runs, errors=errors))


@app.command()
def refused(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's store, name or id.")],
    set_aside: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Continue without the rows that block the job; write them here."),
    ] = None,
    sink: Annotated[str | None, typer.Option(metavar="UID", help="Only rows of this sink, by uid or name.")] = None,
    epoch: Annotated[int | None, typer.Option("--epoch", metavar="E", help="Only rows of this epoch.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines: all rows, one JSON object per line.")] = False,
    root: Annotated[
        str | None, typer.Option(metavar="DIR", help="The folder of stores to find it in, if not ./.millstream.")
    ] = None,
) -> None:
    """Show the rows of committed epochs that a sink's target refuses, and permit setting them aside."""
    from millstream.cli.refused import set_refused_aside, show_refused

    if set_aside is not None:
        if as_json:
            raise typer.BadParameter("--json and --set-aside cannot be combined")
        raise typer.Exit(set_refused_aside(job, root, set_aside, sink=sink, epoch=epoch))
    raise typer.Exit(show_refused(job, root, sink=sink, epoch=epoch, as_json=as_json))


@app.command(cls=ProgramCommand)
def replay(
    snapshot: Annotated[str, typer.Argument(metavar="JOB@EPOCH", help="The job's store, name or id, and an epoch.")],
    script: Annotated[Path, typer.Argument(metavar="JOB.PY", help="The program that ran the epoch.")],
    operator: Annotated[str, typer.Option("--operator", "-o", metavar="UID", help="The operator's uid, or its name.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGS", help="The program's own arguments; after `--` if an option has one of our names."
        ),
    ] = None,
    debugger: Annotated[bool, typer.Option("--pdb", help="Enter the debugger where user code raises.")] = False,
    only_operator: Annotated[bool, typer.Option("--alone", help="Do not run the operator's downstream.")] = False,
    differences_max: Annotated[int, typer.Option("-n", metavar="N", min=1, help="How many differences to show.")] = 20,
    pyflink: Annotated[bool, typer.Option("--pyflink", help="Serve its `pyflink` imports.")] = False,
    define: Annotated[list[str] | None, typer.Option("-D", metavar="KEY=VALUE", help="A setting. Repeatable.")] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show Millstream's own traceback of an error.")] = False,
) -> None:
    """Run an operator's part of a committed epoch again, here, and compare. The job is not changed."""
    from millstream.cli.replay import ReplayRequest, replay_epoch

    request = ReplayRequest(
        snapshot=snapshot,
        operator=operator,
        script=script,
        arguments=tuple(arguments or ()),
        pyflink=pyflink,
        definitions=tuple(define or ()),
        downstream=not only_operator,
        differences_max=differences_max,
        debugger=debugger,
        debug=debug,
    )
    raise typer.Exit(replay_epoch(request))


@app.command()
def version() -> None:
    """Print the versions of Millstream, PySpark and Python."""
    from millstream.cli.versions import versions

    typer.echo(versions())


show_flags_as_flags(app)
