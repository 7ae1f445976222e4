"""Types of values that options take."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from modelglass import api
from modelglass.files import check_folder, check_writable


class TargetName(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.5 on
    """A target, or code in general; completes file names, and functions after `file.py::`."""

    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        path, colons, begun = incomplete.rpartition("::")
        if not colons:
            return [CompletionItem(incomplete, type="file")]
        names = api.roles_in(Path(path))
        return [CompletionItem(f"{path}::{name}") for name in names if name.startswith(begun)]


class NewFile(click.Path):
    """A file to write. That it can be written is checked before any work."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        check_writable(Path(str(path)))
        return path


class NewFolder(click.Path):
    """A folder to write files to. That it is there or can be made is checked before any work."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        check_folder(Path(str(path)))
        return path


class Size(click.ParamType):  # type: ignore[type-arg]
    """An amount of memory, in bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return value if isinstance(value, int) else api.parse_nbytes(value)


class Tokens(click.ParamType):  # type: ignore[type-arg]
    """A number of tokens: 8192, or 8k for 8 × 1,024."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return value if isinstance(value, int) else api.parse_tokens(value)


class DtypeChoice(click.Choice):  # type: ignore[type-arg]
    """An element type, also by its short name: bf16."""

    def __init__(self, choices: Iterable[str]) -> None:
        super().__init__(list(choices))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(api.full_dtype_name(value), param, ctx)
