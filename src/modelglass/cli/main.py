"""The entry point: commands, the default command, errors as people want to read them."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import StringIO
from typing import Any

import click
from click.shell_completion import CompletionItem

from modelglass import __version__
from modelglass.cli._exit import exit_code, write_stderr

COMPLETING = "_MODELGLASS_COMPLETE"  # set while a shell asks for completions

EPILOG = """\b
Examples:
  modelglass model.safetensors
  modelglass scan pytorch_model.bin
  modelglass config.json
  modelglass model.py::build --input 1x3x224x224
  modelglass inspect model.py::build --inputs model.py::batch --train
  modelglass report model.py::build --input 1x3x224x224 --train -o page.html
  modelglass flow model.py::build --input 1x3x224x224 -o model.svg
  modelglass compare model.py::build port.py::build
  modelglass diff base.safetensors tuned.safetensors
  modelglass stats model.py::load --fail-on nan,inf
  modelglass unique model.py::build --input 1x3x224x224 --ops --sort macs
  modelglass info model.py::build --input 1x3x224x224 -o model_info.json
  modelglass completion bash >> ~/.bashrc

Summary, flow and memory in one text, and a checkpoint against its model: see model-inspector --help.

Exit codes: 0 done; 1 done, with findings; 2 wrong usage; 3 the target could not be read or run;
4 stopped at a limit.
"""


COMMANDS = (
    *("inspect", "report", "view", "flow", "memory", "fit", "compare", "diff", "stats", "scan", "unique"),
    "info",
    "completion",
)


class _Commands(click.Group):
    """A group whose default command is `inspect`. A command is imported when it is the one that is wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"modelglass.cli.{name}"), name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, or a target, which needs no command."""
        from modelglass.cli._types import TargetName

        commands = super().shell_complete(ctx, incomplete)
        return commands or TargetName().shell_complete(ctx, ctx.command.params[0], incomplete)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and self._is_target(args[0]):
            args = ["inspect", *args]
        return super().parse_args(ctx, args)

    def _is_target(self, arg: str) -> bool:
        if arg in COMMANDS or arg in ("--help", "-h", "--version"):
            return False
        return arg.startswith("-") or any(mark in arg for mark in ":./\\") or os.path.exists(arg)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS:
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}?" if close else "see modelglass --help"
            raise click.UsageError(f"{args[0]!r} is neither a command nor a target; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="modelglass")
@click.option("--debug", is_flag=True, help="Show full tracebacks. May appear anywhere on the command line.")
def cli(debug: bool) -> None:
    """See through any model: what it is, what it costs, what ran, what its file holds.

    `modelglass TARGET` is short for `modelglass inspect TARGET`. A target is a checkpoint, a configuration,
    or code that returns a model of PyTorch or MLX.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    run(cli, "modelglass", arguments)


def run(command: click.Command, name: str, arguments: list[str] | None = None) -> None:
    """Run a command under that name and exit with its code."""
    args = sys.argv[1:] if arguments is None else arguments
    if COMPLETING in os.environ:
        import_module("modelglass.cli.completion")  # shells as they are completed here
    debug = "--debug" in args
    rest = [arg for arg in args if arg != "--debug"]  # it may appear anywhere on the line
    sys.exit(exit_code(lambda: _answer(command, name, rest), debug=debug))


def _answer(command: click.Command, name: str, args: list[str]) -> Any:
    """The exit code of a command; wrong usage is reported as click does it."""
    try:
        return command.main(args, prog_name=name, standalone_mode=False) or 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        shown = StringIO()
        error.show(shown)
        write_stderr(*shown.getvalue().splitlines())  # it may quote the name of a file
        return error.exit_code
    except click.Abort as stop:
        raise KeyboardInterrupt from stop


if __name__ == "__main__":
    main()
