"""`modelglass completion SHELL`: a script that completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")

EPILOG = """\b
Examples:
  modelglass completion bash >> ~/.bashrc
  modelglass completion fish > ~/.config/fish/completions/modelglass.fish
"""


@click.command(epilog=EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a shell completion script."""
    root = context.find_root()
    maker = get_completion_class(shell)
    if maker is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(maker(root.command, {}, "modelglass", "_MODELGLASS_COMPLETE").source())
