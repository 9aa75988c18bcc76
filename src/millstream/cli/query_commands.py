"""`millstream query-server`: the declaration of its command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["add_query_commands"]


def add_query_commands(app: typer.Typer) -> None:
    """Add the commands to `millstream`."""
    app.command("query-server")(query_server)


def query_server(
    job: Annotated[str, typer.Option("--job", metavar="JOB", help="The job's store, name or id.")],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The HTTP address; by default only this machine.")
    ] = "127.0.0.1:8787",
    flight_port: Annotated[
        int | None, typer.Option(metavar="PORT", min=0, max=65535, help="The port of Arrow Flight; 0 for any.")
    ] = None,
    key_groups: Annotated[
        str | None, typer.Option(metavar="FIRST-LAST", help="Hold these key groups only: 0-63.")
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The access rights: a JSON file of bearer tokens.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(metavar="PEM", help="TLS: the certificate.")] = None,
    private_key: Annotated[Path | None, typer.Option(metavar="PEM", help="TLS: its private key.")] = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST", help="The host in addresses for clients, if not that of --listen.")
    ] = None,
    allow_anonymous: Annotated[
        bool, typer.Option("--allow-anonymous", help="Answer other machines without tokens.")
    ] = False,
    allow_undeclared: Annotated[
        bool, typer.Option("--allow-undeclared", help="Also states that the program did not make queryable.")
    ] = False,
    allow_origin: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Web pages from there may send requests. Repeatable.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Requests may name this host, too. Repeatable."),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="A proxy whose X-Forwarded-For is trusted. Repeatable."),
    ] = None,
    requests_per_s: Annotated[
        float | None, typer.Option(metavar="N", min=0.001, help="The maximal requests a second from one address.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="One HTML file, served at /: a dashboard."),
    ] = None,
    cache_folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Cache files of a remote store there, not in memory.")
    ] = None,
    no_register: Annotated[
        bool, typer.Option("--no-register", help="Do not register in the store; clients must know the address.")
    ] = False,
    read_only: Annotated[
        bool,
        typer.Option("--read-only", help="Write nothing into the store: no registration, no lease on older epochs."),
    ] = False,
    root: Annotated[
        str | None, typer.Option(metavar="DIR", help="The folder of stores to find it in, if not ./.millstream.")
    ] = None,
) -> None:
    """Answer queries of a job's state, by committed epochs, over HTTP and Arrow Flight, until interrupted."""
    from millstream.cli.query_server import ServerCommand, serve_queries
    from millstream.query.server_request import ServerRequest

    request = ServerRequest(
        listen=listen,
        flight_port=flight_port,
        advertise=advertise,
        key_groups=key_groups,
        tokens=tokens,
        certificate=certificate,
        private_key=private_key,
        allow_anonymous=allow_anonymous,
        allow_undeclared=allow_undeclared,
        allow_origins=tuple(allow_origin or ()),
        allow_hosts=tuple(allow_host or ()),
        trusted_proxies=tuple(trusted_proxy or ()),
        requests_per_s=requests_per_s,
        page=page,
    )
    command = ServerCommand(job, request, root, cache_folder, registers=not no_register, read_only=read_only)
    raise typer.Exit(serve_queries(command))
