"""Commands as text, added to `written`."""

from __future__ import annotations

from millstream.sql.statements import (
    CallProcedure,
    ClientCommand,
    Describe,
    JarStatement,
    Module,
    ResetOption,
    SetOption,
    Show,
    StopJob,
    Use,
)
from millstream.sql.writing_expressions import commas, name_text, path_text, text_literal, written
from millstream.sql.writing_statements import joined_words, partition_text, with_text

__all__: list[str] = []


@written.register
def _set(node: SetOption) -> str:
    return "SET" if node.key is None else f"SET {text_literal(node.key)} = {text_literal(node.value or '')}"


@written.register
def _reset(node: ResetOption) -> str:
    return "RESET" if node.key is None else f"RESET {text_literal(node.key)}"


@written.register
def _use(node: Use) -> str:
    if node.kind == "MODULES":
        return f"USE MODULES {commas(map(name_text, node.names))}"
    return joined_words("USE", "CATALOG" if node.kind == "CATALOG" else "", path_text(node.names))


@written.register
def _show(node: Show) -> str:
    like = "" if node.like is None else f"{'ILIKE' if node.ignores_case else 'LIKE'} {text_literal(node.like)}"
    return joined_words(
        "SHOW",
        node.user and "USER",
        node.full and "FULL",
        node.kind,
        path_text(node.name),
        f"FROM {path_text(node.within)}" if node.within else "",
        partition_text(node.partition),
        node.negated and "NOT",
        like,
    )


@written.register
def _describe(node: Describe) -> str:
    kind = "" if node.kind == "TABLE" else node.kind
    name = text_literal(node.name[0]) if node.kind == "JOB" else path_text(node.name)
    return joined_words("DESCRIBE", kind, node.extended and "EXTENDED", name)


@written.register
def _module(node: Module) -> str:
    return joined_words(node.action, "MODULE", name_text(node.name), with_text(node.options))


@written.register
def _jar(node: JarStatement) -> str:
    return f"{node.action} JAR {text_literal(node.path)}"


@written.register
def _stop(node: StopJob) -> str:
    savepoint, drain = node.with_savepoint and "WITH SAVEPOINT", node.with_drain and "WITH DRAIN"
    return joined_words("STOP JOB", text_literal(node.job), savepoint, drain)


@written.register
def _procedure(node: CallProcedure) -> str:
    return f"CALL {path_text(node.name)}({commas(written(each) for each in node.arguments)})"


@written.register
def _client(node: ClientCommand) -> str:
    return node.word
