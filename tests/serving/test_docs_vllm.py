"""What the documents show of vLLM is what happens: blocks marked `vllm` run here, where vLLM is installed.

`pytest tests/serving/test_docs_vllm.py --update-golden` rewrites the outputs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
PAGES = [page for page in DOCUMENTS if " vllm\n" in page.read_text(encoding="utf-8")]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
# Blocks of a page follow each other in one process, which vLLM's own processes import again.
RUN_EXAMPLES = """
import contextlib, doctest, io, json, sys
def shown(block, variables):
    texts = []
    for example in doctest.DocTestParser().get_examples(block):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(example.source, "example", "single"), variables)
        texts.append(">>> " + "\\n... ".join(example.source.splitlines()) + "\\n" + out.getvalue())
    return "".join(texts)
if __name__ == "__main__":
    variables = {}
    blocks = [shown(block, variables) for block in json.load(sys.stdin)]
    print(json.dumps(blocks))
"""


@pytest.mark.parametrize("name", NAMES)
def test_examples_of_vllm(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, tiny_in_examples: None
) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    renewed = _renewed(text, "console", [_command(block) for block in _blocks(text, "console")])
    renewed = _renewed(renewed, "python", _examples(_blocks(text, "python"), tmp_path))
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


def _pattern(language: str) -> str:
    return rf"```{language} vllm\n(.*?)```\n"


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(_pattern(language), text, re.DOTALL)


def _renewed(text: str, language: str, shown: list[str]) -> str:
    """The text with other content of its blocks of a language, one by one."""
    blocks = iter(shown)
    return re.sub(
        _pattern(language),
        lambda _: f"```{language} vllm\n{next(blocks)}```\n",
        text,
        flags=re.DOTALL,
    )


def _command(block: str) -> str:
    line = block.splitlines()[0]
    words = line.removeprefix("$ ").split()
    assert words[0] == "modelglass", line
    return f"{line}\n{_output([sys.executable, '-m', *words])}"


def _examples(blocks: list[str], folder: Path) -> list[str]:
    if not blocks:
        return []
    program = folder / "examples.py"
    program.write_text(RUN_EXAMPLES)
    shown: list[str] = json.loads(_output([sys.executable, str(program)], given=json.dumps(blocks)))
    return shown


def _output(command: list[str], given: str = "") -> str:
    env = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        command, cwd=ROOT, env=env, input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr[-4000:]
    return done.stdout
