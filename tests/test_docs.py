"""What the documents show is what happens: every example runs and prints what it says.

`pytest --update-golden` rewrites the outputs.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from modelglass.analyses.cost import formulas
from modelglass.api import _compare, _diff, _fit, _flow, _inspect, _memory, _output, _stats, _unique
from modelglass.cli.main import main
from modelglass.cli.model_inspector import main as model_inspector
from modelglass.frameworks.protocol import Adapter
from modelglass.frameworks.shared import request as requests
from modelglass.report import dtypes, sizes

ROOT = Path(__file__).parents[1]
if not (ROOT / "examples" / "files").exists():  # `make test` has written them
    subprocess.run([sys.executable, str(ROOT / "examples" / "make_files.py")], check=True)
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
COMMANDS = {"modelglass": main, "model-inspector": model_inspector}
ADDRESS = "https://github.com/modelglass/modelglass/blob/main/"  # of pages that are shown elsewhere as well
RAW = "https://raw.githubusercontent.com/modelglass/modelglass/main/"
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        _compare,
        _diff,
        _fit,
        _flow,
        _inspect,
        _memory,
        _stats,
        _unique,
        _output,
        formulas,
        requests,
        dtypes,
        sizes,
    ],
    ids=lambda each: each.__name__,
)
def test_docstrings(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def blocks(text: str, language: str) -> list[re.Match[str]]:
    return list(re.finditer(rf"```{language}\n(.*?)```\n", text, re.DOTALL))


def output_of_command(line: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    out = io.StringIO()
    err = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit):
        COMMANDS[line.split()[0]](line.split()[1:])
    return out.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_console_examples(name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    renewed = text
    for block in blocks(text, "console"):
        command = block[1].splitlines()[0].removeprefix("$ ")
        assert command.split()[0] in COMMANDS, command
        shown = f"```console\n$ {command}\n{output_of_command(command, monkeypatch)}```\n"
        renewed = renewed.replace(block[0], shown)
    _check(ROOT / name, text, renewed, request)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_python_examples(name: str, request: pytest.FixtureRequest) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    renewed = text
    variables: dict[str, object] = {}
    for block in blocks(text, "python"):
        examples = doctest.DocTestParser().get_examples(block[1])
        assert examples, f"{name} shows Python that is not run"
        shown = "".join(_with_output(example, variables) for example in examples)
        renewed = renewed.replace(block[0], f"```python\n{shown}```\n")
    _check(ROOT / name, text, renewed, request)


def _with_output(example: doctest.Example, variables: dict[str, object]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(example.source, "<example>", "single"), variables)
    first, *rest = example.source.splitlines()
    code = "".join(f"... {line}\n" for line in rest)
    return f">>> {first}\n{code}{out.getvalue()}"


def _check(path: Path, text: str, renewed: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        path.write_text(renewed, encoding="utf-8")
    else:
        assert renewed == text


@pytest.mark.parametrize("name", [*NAMES, "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        ours = target.removeprefix(ADDRESS).removeprefix(RAW)
        if ":" in ours:
            continue
        found = (page.parent if ours == target else ROOT) / ours
        assert found.exists(), target
        assert found.is_dir() or found.stat().st_size > 0, f"{target} is empty"


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_links_of_the_readme_work_wherever_it_is_shown() -> None:
    assert [each for each in re.findall(r"\]\(([^)]+)\)", readme()) if not each.startswith("https://")] == []


def test_the_readme_is_a_front_page() -> None:
    assert readme().count("\n") <= 170


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for each in blocks(readme(), "sh") for line in each[1].splitlines()])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_commands_of_the_readme_need_no_file(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *arguments = shlex.split(line)
    with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as ended:
        COMMANDS[name](arguments)
    assert ended.value.code in (None, 0)
    assert out.getvalue() or list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_picture_of_the_readme_is_what_its_example_draws(request: pytest.FixtureRequest) -> None:
    variables: dict[str, Any] = {}
    (block,) = blocks(readme(), "python")
    with contextlib.redirect_stdout(io.StringIO()):
        exec("".join(each.source for each in doctest.DocTestParser().get_examples(block[1])), variables)
    path = ROOT / "docs" / "pictures" / "transformer.svg"
    _check(path, path.read_text(encoding="utf-8") if path.exists() else "", variables["drawing"], request)


def test_every_page_of_the_documentation_is_in_its_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [page.name for page in (ROOT / "docs").glob("*.md")]
    assert [name for name in pages if f": {name}\n" not in menu] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_files_that_a_guide_names_are_there(page: str) -> None:
    named = re.findall(r"`([\w./-]+(?:\.py|/))`", (ROOT / page).read_text())
    assert named
    missing = (name for name in named if not (ROOT / name).exists())
    assert [name for name in missing if not any((ROOT / "src").rglob(name.rstrip("/")))] == []


def test_contributing_names_every_function_of_an_adapter() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    functions = [name for name, value in vars(Adapter).items() if isinstance(value, FunctionType)]
    assert [name for name in functions if name[0] != "_" and f"`{name}`" not in text] == []
