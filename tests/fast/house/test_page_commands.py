"""Commands and settings on the pages are valid: commands are parsed by the real command line, settings are known.

Commands are parsed and not run; those of the tutorial and of the README are run by tests of their own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from millstream.cli.main import app
from millstream.common.options import KNOWN, check_key
from millstream.common.options.table_options import TABLE_OPTIONS
from millstream.connectors.tables.factories import FACTORIES
from millstream.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "millstream"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += sorted(
    path for folder in ("docs", "examples") for path in (ROOT / folder).rglob("*.md") if path.parent.name != "decisions"
)
PACKAGES = {path.name.removesuffix(".py") for path in SOURCE.iterdir()}

BLOCK = re.compile(r"^```(?:sh|text|bash|console|)\n(.*?)^```", re.M | re.S)
QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
UsageError = typer.BadParameter.__bases__[0]
COMMAND = re.compile(r"(?:^|[\s;&|(])(millstream [a-z-].*)")
SETTING = re.compile(
    r"(?<![\w./-])((?:millstream|table|sql-client|execution|pipeline|parallelism|restart-strategy|state)"
    r"(?:\.[a-z][a-z0-9-]*)+)(?![\w./*(-])"
)


def commands() -> Iterator[tuple[str, str, bool]]:
    """(page, command, whether it is complete) for commands in blocks and in sentences."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.findall(text):
            for line in re.sub(r"\\\n\s*", " ", block).splitlines():
                match = COMMAND.search(line.strip().removeprefix("$ "))
                if match is not None and not line.startswith("millstream:"):
                    yield page.name, match.group(1), True
        for quoted in QUOTED.findall(re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
            if re.match(r"millstream [a-z-]", quoted):
                yield page.name, quoted, False


def typed_words(command: str) -> list[str]:
    """The arguments of `millstream` after shell parsing: without comments, redirections and following commands."""
    lexer = shlex.shlex(re.sub(r"\s#.*", "", command), posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    for word in lexer:
        if word.strip(";&|<>") == "":
            return words[1:-1] if word.startswith(">") and words[-1].isdigit() else words[1:]
        words.append(word)
    return words[1:]


def parse(words: list[str]) -> None:
    """Parses arguments through all command groups; raises UsageError for invalid ones."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("millstream", list(words))
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
    for definition in context.params.get("define") or ():
        check_key(definition.partition("=")[0])


@pytest.mark.parametrize(
    ("page", "command"), [(page, command) for page, command, is_whole in commands() if is_whole and "…" not in command]
)
def test_commands_on_the_pages_are_valid(page: str, command: str) -> None:
    parse(typed_words(command))


@pytest.mark.parametrize(
    ("page", "quoted"), sorted({(page, text) for page, text, is_whole in commands() if not is_whole})
)
def test_commands_and_options_within_sentences_exist(page: str, quoted: str) -> None:
    words = [word for word in typed_words(quoted) if word != "…"]
    if words[0] == "run" and len(words) > 1:
        parse(words)  # unknown options belong to the program
        return
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "commands") and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    if hasattr(command, "commands"):
        assert not words or words[0].startswith("-"), f"there is no command {quoted!r}"
    below = [command, *getattr(command, "commands", {}).values()]  # `millstream state … --read-only`: of each of them
    params = [param for each in below for param in each.params]
    options = {name for param in params for name in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}
    unknown = [word for word in words if re.match(r"--?[a-zA-Z]", word) and word.partition("=")[0] not in options]
    assert not unknown, f"{quoted!r}: the command has no option {unknown}"


@pytest.mark.parametrize(
    "wrong",
    [
        "run",
        "list jobs --snapshot",
        "state shew jobs/a",
        "rescale jobs/a many",
        "run job.py -D millstream.retention.duration=1",
    ],
)
def test_invalid_commands_are_detected(wrong: str) -> None:
    with pytest.raises((UsageError, ConfigurationError)):
        parse(typed_words(f"millstream {wrong} 2> run.log &  # so"))


def settings() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        if page.name == "pyflink-names.md":  # its names are PyFlink's modules
            continue
        for key in SETTING.findall(page.read_text(encoding="utf-8")):
            if not (key.startswith("millstream.") and key.split(".")[1] in PACKAGES):
                yield page.name, key


def test_settings_named_on_the_pages_are_known() -> None:
    named = sorted(set(settings()))
    assert len(named) > 150
    unknown = [f"{page}: {key}" for page, key in named if not _is_known(key)]
    assert not unknown, "these settings do not exist:\n" + "\n".join(unknown)


def _is_known(key: str) -> bool:
    known = (*KNOWN, *TABLE_OPTIONS)
    if key in known or any(each.startswith(f"{key}.") for each in known) or key in _read_by_the_code():
        return True
    try:
        check_key(key)
    except ConfigurationError:
        return False
    return not key.startswith(("millstream.", "table."))


@cache
def _read_by_the_code() -> frozenset[str]:
    """Keys that a module reads itself, or writes for others to read."""
    texts = (path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    return frozenset(
        key for text in texts for key in re.findall(r"[\"']((?:millstream|table)(?:\.[a-z-]+)+)[\"']", text)
    )


def test_no_page_advises_to_install_the_bare_package_from_an_index() -> None:
    """`pip install 'millstream[kafka]'` adds the requirements of an extra to the installed Millstream; the bare
    name would be looked up in an index.
    """
    wrong = [
        f"{page.name}: {line.strip()}"
        for page in PAGES
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install (?:-\S+ )*['\"]?millstream['\"]?(?![\w\[-])", line)
    ]
    assert not wrong, wrong


def test_the_sql_page_names_every_connector() -> None:
    page = (ROOT / "docs" / "sql" / "statements.md").read_text(encoding="utf-8")
    listed = re.search(r"^Connectors: (.*?)\(\[their options", page, re.M | re.S)
    assert listed is not None
    assert sorted(re.findall(r"`([a-z-]+)`", listed.group(1))) == sorted(FACTORIES)
