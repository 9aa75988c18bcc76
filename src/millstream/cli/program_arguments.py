"""Assigns the words after a program to the command or the program: `millstream run job.py --store jobs/a --output out`
has one option for each.

After the program's file, an option that the command knows is the command's, written as in its help (`--store x`,
`--store=x`, `-p 4`, `-Dkey=value`). Everything else is the program's, in its order. Words after `--` are always the
program's, so that a program can have options with the same names as ours.

Words before the program's file are always the command's: an unknown option there is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer

from millstream.cli.help_pages import FlagCommand
from millstream.errors import nearest

__all__ = ["ProgramCommand", "arranged", "misspelt"]


class ProgramCommand(FlagCommand):
    """A command whose last named argument is a program with its own arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        takes_value = dict.fromkeys(ctx.help_option_names, False)
        named = 0
        for parameter in self.params:
            if parameter.param_type_name == "argument":
                named += parameter.nargs == 1
            else:
                takes_value |= dict.fromkeys(parameter.opts, not getattr(parameter, "is_flag", False))
        words = arranged(args, takes_value, named)
        typed = args[: args.index("--")] if "--" in args else args
        passed_on = [word for word in words[words.index("--") :] if word in typed] if "--" in words else []
        for option, known in misspelt(passed_on, list(takes_value)).items():
            typer.echo(f"millstream: {option} is passed to the program. Did you mean our option {known}?", err=True)
        return super().parse_args(ctx, words)


def arranged(arguments: Sequence[str], takes_value: Mapping[str, bool], named: int = 1) -> list[str]:
    """The same arguments, the command's first, then the `named` ones, and the program's own after `--`.

    >>> arranged(["job.py", "--output", "x", "-p", "4"], {"-p": True})
    ['-p', '4', 'job.py', '--', '--output', 'x']
    """
    own: list[str] = []
    names: list[str] = []
    passed: list[str] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            passed += waiting
            break
        if _is_known(word, takes_value):
            own.append(word)
            if takes_value.get(word) and waiting:
                own.append(waiting.pop(0))
        elif len(names) < named:
            (own if word.startswith("-") and word != "-" else names).append(word)
        else:
            passed.append(word)
    return [*own, *names, *(["--", *passed] if passed else [])]


def _is_known(word: str, takes_value: Mapping[str, bool]) -> bool:
    """Whether the command has this option, either separate or with its value in the same word."""
    if word in takes_value:
        return True
    if word.startswith("--"):
        name, equals, _ = word.partition("=")
        return bool(equals) and takes_value.get(name, False)
    # A short option with its value: `-input` is not `-i`, so the value must look like one.
    value = word[2:]
    return takes_value.get(word[:2], False) and (value.isdecimal() or "=" in value)


def misspelt(arguments: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Maps options for the program to similar options of the command: they are passed on, with a warning.

    >>> misspelt(["--paralelism", "4", "--output", "x"], ["--parallelism", "--plain"])
    {'--paralelism': '--parallelism'}
    """
    options = [word.partition("=")[0] for word in arguments if word.startswith("--")]
    near = {option: nearest(option, names, likeness=0.85) for option in options}
    return {option: own for option, own in near.items() if own is not None and own != option}
