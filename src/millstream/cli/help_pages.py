"""Shows flags in `--help` without the type `<bool>`."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["FlagCommand", "FlagGroup", "show_flags_as_flags"]


class FlagCommand(TyperCommand):
    """A command whose flags are shown without a type."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))


class FlagGroup(TyperGroup):
    """A group of commands whose flags are shown without a type."""

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params(ctx))


def _without_types(parameters: Any) -> Any:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.display_type_rich = lambda ctx: None
    return parameters


def show_flags_as_flags(app: typer.Typer) -> None:
    """Show the flags of all commands of `app` without a type; call it after all commands are added."""
    app.info.cls = FlagGroup
    for command in app.registered_commands:
        if command.cls in (None, TyperCommand):
            command.cls = FlagCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            show_flags_as_flags(group.typer_instance)
