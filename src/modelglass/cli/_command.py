"""Commands and options: groups of options in the help, and earlier spellings that still work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Option(click.Option):
    """An option. `group` is its section in the help; `aliases` are earlier spellings, left out of it."""

    def __init__(
        self, *args: Any, group: str | None = None, aliases: Sequence[str] = (), **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.group, self.aliases = group, tuple(aliases)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        shown = self.opts
        self.opts = [*shown, *self.aliases]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


class Command(click.Command):
    """A command whose help has a section for each group of options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                group = getattr(parameter, "group", None) or "Options"
                sections.setdefault(group, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def option(*names: str, **more: Any) -> Callable[[Decorated], Decorated]:
    """`click.option` with groups and aliases."""
    return click.option(*names, cls=Option, **more)


def options(*several: Callable[[Any], Any]) -> Callable[[Decorated], Decorated]:
    """Several options in one, in the order of the help."""

    def add(command: Decorated) -> Decorated:
        for each in reversed(several):
            command = each(command)
        return command

    return add


def options_as(name: str, kind: Callable[..., Any], *several: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several options whose values a command gets as one argument: `kind`, a data class, made of them."""
    taken = [field.name for field in fields(kind)]  # type: ignore[arg-type]

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def run(**values: Any) -> Any:
            values[name] = kind(**{field: values.pop(field) for field in taken if field in values})
            return command(**values)

        return options(*several)(run)

    return add
