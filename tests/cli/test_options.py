"""Options are the same in every command: one name, one meaning, one type."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from command_line import run
from modelglass.cli.main import COMMANDS, cli

Capture = pytest.CaptureFixture[str]


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def parsed(line: str) -> dict[str, Any]:
    """The options of a line as its command would get them."""
    arguments = shlex.split(line, comments=True)
    if ">" in line:  # of the shell
        arguments = arguments[: next(i for i, each in enumerate(arguments) if each.startswith(">"))]
    with cli.make_context(arguments[0], arguments[1:]) as context:
        name, found, rest = cli.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        with found.make_context(name, rest, parent=context) as inner:
            return inner.params


def meaning(option: click.Option) -> tuple[object, ...]:
    """What an option is about; which columns, figures and formats there are is each command's own."""
    text = (option.help or "").partition(":")[0] if option.name == "columns" else option.help
    return text, type(option.type), option.metavar, option.multiple, option.is_flag, option.name


def test_each_option_has_one_meaning_in_all_commands() -> None:
    seen: dict[str, tuple[str, tuple[object, ...]]] = {}
    for name in COMMANDS:
        for option in command(name).params:
            if isinstance(option, click.Option):
                for spelling in option.opts:
                    first, found = seen.setdefault(spelling, (name, meaning(option)))
                    assert meaning(option) == found, f"{spelling} differs between {first} and {name}"
    assert "--dtype" not in seen  # it would be that of inputs


def test_an_earlier_spelling_never_is_the_name_of_another_option_of_the_command() -> None:
    for name in COMMANDS:
        options = [each for each in command(name).params if isinstance(each, click.Option)]
        spelled = [spelling for each in options for spelling in (*each.opts, *getattr(each, "aliases", ()))]
        assert len(spelled) == len(set(spelled)), name


def test_fit_takes_every_what_if_option_of_memory() -> None:
    def changes(name: str) -> list[str]:
        groups = {each.name: getattr(each, "group", None) for each in command(name).params}
        return [each for each, group in groups.items() if each is not None and group == "What-if options"]

    assert changes("fit") == changes("memory")
    assert {"devices", "sharding", "seq_len", "batch_size", "autocast", "recompute"} <= set(changes("fit"))


EARLIER = {
    "fit m.py::f --memory 24GiB": {"device_memory": 24 * 2**30},
    "fit m.py::f --memory 1MB --dtype bfloat16": {"weights": "bfloat16"},
    "memory m.py::f --dtype float16": {"weights": "float16"},
    "memory m.py::f --checkpoint 0 --checkpoint 1.*": {"recompute": ("0", "1.*")},
    "inspect c.json --framework vllm --memory 80GiB --dtype half": {
        "device_memory": 80 * 2**30,
        "model_dtype": "half",
    },
}


@pytest.mark.parametrize(("line", "expected"), EARLIER.items(), ids=EARLIER)
def test_earlier_spellings_still_work_and_are_not_in_the_help(line: str, expected: dict[str, Any]) -> None:
    params = parsed(f"modelglass {line}")
    assert {name: params[name] for name in expected} == expected
    found = command(line.split()[0])
    shown = found.get_help(click.Context(found))
    assert not re.search(r"--(memory|dtype|checkpoint)\b", shown)


def examples() -> list[str]:
    texts = [cli.epilog or "", *(command(name).epilog or "" for name in COMMANDS)]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return [line for line in dict.fromkeys(lines) if line.startswith("modelglass ")]


def test_every_command_has_examples() -> None:
    for name in COMMANDS:
        assert "modelglass" in (command(name).epilog or ""), name


@pytest.mark.parametrize("line", examples())
def test_examples_in_the_help_are_understood(line: str) -> None:
    assert parsed(line)


def test_no_description_is_cut_off(capsys: Capture) -> None:
    _, out, _ = run("--help", capsys=capsys)
    listed = out.partition("Commands:")[2].partition("\n\n")[0]
    assert "..." not in listed
    for name in COMMANDS:
        first = (command(name).help or "").strip().splitlines()[0]
        assert first.endswith(".")
        assert len(first) <= 45, name
        assert first.removesuffix(".") in listed


@pytest.mark.parametrize("name", ["inspect", "info", "compare"])
def test_options_of_vllm_have_a_section_of_their_own(name: str) -> None:
    found = command(name)
    own, _, vllm = found.get_help(click.Context(found)).partition("vLLM options:")
    assert "--tensor-parallel" in vllm
    assert "--tensor-parallel" not in own


WRITING = [
    (name, option.opts[0])
    for name in COMMANDS
    for option in command(name).params
    if option.name in ("output", "plot")
]


@pytest.mark.parametrize(("name", "option"), WRITING)
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    name: str, option: str, capsys: Capture, tmp_path: Path
) -> None:
    more = ["--device-memory", "1GiB"] if name == "fit" else []
    target = tmp_path / "missing" / "file.svg"
    code, out, err = run(name, "not_there.py::f", *more, option, str(target), capsys=capsys)
    assert (code, out) == (2, "")
    assert "there is no folder" in err  # and not: there is no file 'not_there.py'
    code, _, err = run(name, "not_there.py::f", *more, option, str(tmp_path), capsys=capsys)
    assert (code, "it is a folder" in err) == (2, True)


@pytest.mark.parametrize("name", ["inspect", "stats", "scan"])
def test_limits_are_listed(name: str, capsys: Capture) -> None:
    code, out, err = run(name, "--limit", "help", capsys=capsys)
    assert (code, err) == (0, "")
    assert "tensors" in out
    assert "2,000,000" in out


SIZES = {
    "24G": "write 24GiB (powers of 1024) or 24GB (powers of 1000)",
    "1.5t": "write 1.5TiB (powers of 1024) or 1.5TB (powers of 1000)",
    "2x24GiB": "memory of one device, 24GiB, and the number of devices by itself: --devices 2",
    "lots": "write 24GiB, 24GB, 512MiB or a number of bytes",
}


@pytest.mark.parametrize(("text", "hint"), SIZES.items(), ids=SIZES)
def test_sizes_that_are_not_clear_are_refused_with_the_right_spelling(
    text: str, hint: str, capsys: Capture
) -> None:
    code, out, err = run("fit", "model.py::build", "--device-memory", text, capsys=capsys)
    assert (code, out) == (2, "")
    assert f"{text!r} is not a valid size" in err
    assert hint in err


@pytest.mark.parametrize("short", ["bf16", "BF16", "torch.bfloat16", "bfloat16"])
def test_short_names_of_dtypes_are_understood(short: str) -> None:
    assert parsed(f"modelglass memory m.py::f --weights {short}")["weights"] == "bfloat16"
    assert parsed(f"modelglass memory m.py::f --autocast {short}")["autocast"] == "bfloat16"


def completed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> list[str]:
    """What bash is offered at the end of a line; it splits words at colons."""
    words = [part for part in re.split(r" |(::)", line) if part is not None]
    words = words[:-1] if words[-1] == "" and words[-2] == "::" else words
    words = [word for index, word in enumerate(words) if word or index == len(words) - 1]
    monkeypatch.setenv("_MODELGLASS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "\n".join(words))
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    code, out, _ = run(capsys=capsys)
    assert code == 0
    return out.split()


MODULE = """
import torch
def build(): return torch.nn.Linear(2, 2)
def batch(): return torch.ones(2, 2)
def helper(x): return x
"""

COMPLETED = {
    "modelglass inspect net.py::": ["plain,build", "plain,batch"],
    "modelglass inspect net.py::bu": ["plain,build"],
    "modelglass net.py::bu": ["plain,build"],
    "modelglass net.py::build --inputs net.py::ba": ["plain,batch"],
    "modelglass compare net.py::build net.py::bu": ["plain,build"],
    "modelglass ne": ["file,ne"],
    "modelglass stats ne": ["file,ne"],
    "modelglass mem": ["plain,memory"],
    "modelglass fit net.py::build --device-m": ["plain,--device-memory"],
    "modelglass memory net.py::build --wei": ["plain,--weights"],
}


@pytest.mark.parametrize(("line", "expected"), COMPLETED.items(), ids=COMPLETED)
def test_files_are_completed_and_functions_in_them(
    line: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "net.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    assert completed(line, monkeypatch, capsys) == expected
