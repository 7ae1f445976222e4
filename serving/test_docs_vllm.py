"""What the documents show of vLLM is what happens: blocks marked `vllm` run here, where vLLM is installed.

`pytest serving/test_docs_vllm.py --update-golden` rewrites the outputs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
PAGES = [page for page in DOCUMENTS if " vllm\n" in page.read_text(encoding="utf-8")]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
RUN_EXAMPLES = """
import contextlib, doctest, io, sys
def main(text):
    variables, shown = {}, []
    for example in doctest.DocTestParser().get_examples(text):
        lines = example.source.splitlines()
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(example.source, "example", "single"), variables)
        shown.append(">>> " + "\\n... ".join(lines) + "\\n" + out.getvalue())
    return "".join(shown)
if __name__ == "__main__":  # vLLM starts processes that import this file again
    text = sys.stdin.read()
    sys.stdout.write(main(text))
"""


@pytest.mark.parametrize("name", NAMES)
def test_examples_of_vllm(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, tiny_in_examples: None
) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    renewed = _renewed(text, "console", lambda block: _command(block))
    renewed = _renewed(renewed, "python", lambda block: _examples(block, tmp_path))
    if request.config.getoption("--update-golden"):
        (ROOT / name).write_text(renewed, encoding="utf-8")
    assert renewed == text or request.config.getoption("--update-golden")


@pytest.fixture
def tiny_in_examples() -> None:
    """The model that the documents start an engine with."""
    from tiny import save

    folder = ROOT / "examples" / "files" / "tiny-llama"
    if not folder.exists():
        save("llama", folder)


def _renewed(text: str, language: str, run: Callable[[str], str]) -> str:
    """The text with the output of every block of a language as it is now."""
    return re.sub(
        rf"```{language} vllm\n(.*?)```\n",
        lambda block: f"```{language} vllm\n{run(block[1])}```\n",
        text,
        flags=re.DOTALL,
    )


def _command(block: str) -> str:
    line = block.splitlines()[0]
    words = line.removeprefix("$ ").split()
    assert words[0] == "modelglass", line
    return f"{line}\n{_output([sys.executable, '-m', *words])}"


def _examples(block: str, folder: Path) -> str:
    program = folder / "examples.py"
    program.write_text(RUN_EXAMPLES)
    return _output([sys.executable, str(program)], given=block)


def _output(command: list[str], given: str = "") -> str:
    env = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        command, cwd=ROOT, env=env, input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr[-4000:]
    return done.stdout
