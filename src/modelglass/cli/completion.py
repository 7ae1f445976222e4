"""`modelglass completion SHELL`: a script that completes commands, options, files and functions in files."""

from __future__ import annotations

import os

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from modelglass.cli._command import Command
from modelglass.cli._output import emit

SHELLS = ("bash", "zsh", "fish")

EPILOG = """\b
Examples:
  modelglass completion bash >> ~/.bashrc
  modelglass completion fish > ~/.config/fish/completions/modelglass.fish
"""


@add_completion_class
class BashWithColons(BashComplete):
    """Bash takes a colon for the end of a word; here `file.py::function` is one word."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the one that is completed, and that one."""
        words = ["".join(split_arg_string(word)) for word in os.environ["COMP_WORDS"].split("\n")[1:]]
        current = int(os.environ["COMP_CWORD"])
        joined: list[str] = []
        for index, word in enumerate(words[:current]):
            colons = set(word) == {":"} or (index > 0 and set(words[index - 1]) == {":"})
            if colons and joined:
                joined[-1] += word
            else:
                joined.append(word)
        if current > len(words):  # nothing of the word is there yet
            joined.append("")
        incomplete = joined.pop() if joined else ""
        return joined, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """What bash puts in place of the part after the last colon."""
        if item.type != "plain":
            return super().format_completion(item)
        return f"{item.type},{item.value.rpartition(':')[2]}"


@click.command(cls=Command, epilog=EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a shell completion script."""
    root = context.find_root()
    maker = get_completion_class(shell)
    if maker is None:
        raise click.UsageError(f"no completion for {shell}")
    emit(f"{maker(root.command, {}, 'modelglass', '_MODELGLASS_COMPLETE').source()}\n", None)
