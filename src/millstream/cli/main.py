"""The `millstream` command: `run`, `list`, `version`.

This module only says what can be typed. What a command does is imported when it is called, so that `--help` answers
at once: neither PySpark nor PyArrow is loaded for it.

Exit codes: 0 done, 1 the job or program failed, 2 the command line is wrong, 130 aborted by Ctrl-C.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(
    name="millstream",
    help="Stateful stream processing for Python: PyFlink's API and Flink's promises, on Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def run(
    script: Annotated[Path, typer.Argument(metavar="JOB.PY", help="The program, as `python JOB.PY` would run it.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]...", help="The program's own arguments.")
    ] = None,
    pyflink: Annotated[bool, typer.Option("--pyflink", help="Serve its `pyflink` imports: run it unmodified.")] = False,
    parallelism: Annotated[
        int | None, typer.Option("-p", "--parallelism", metavar="N", help="Subtasks of an operator.")
    ] = None,
    define: Annotated[
        list[str] | None,
        typer.Option("-D", metavar="KEY=VALUE", help="A setting; the program's own settings win. Repeatable."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where the job keeps its epochs; resumes the job that is there."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option("--from", metavar="STORE", help="Resume the job of this store; refused when there is none."),
    ] = None,
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
        store=store,
        resume=resume,
        plain=plain,
        debug=debug,
    )
    raise typer.Exit(run_program(request))


@app.command("list")
def list_(
    root: Annotated[
        str | None,
        typer.Argument(metavar="[ROOT]", help="A job's store, or a folder of stores. [default: ./.millstream]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """List jobs and how far they are, by their newest manifests."""
    from millstream.cli.listing import list_jobs

    raise typer.Exit(list_jobs(root, as_json=as_json))


@app.command()
def version() -> None:
    """Print the versions of Millstream, PySpark and Python."""
    from millstream.cli.versions import versions

    typer.echo(versions())
