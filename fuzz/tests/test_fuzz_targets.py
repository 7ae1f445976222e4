"""The fuzz targets take good files, keep their own rules, and tell of one that is broken."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from fuzz import run, seeds, targets
from fuzz.mutations import mutated

from modelglass import api

FEW = [name for name in targets.TARGETS if name not in ("pt2", "dcp", "torchscript")]  # torch takes seconds


@pytest.fixture(scope="module")
def made() -> dict[str, seeds.Seeds]:
    return seeds.seeds(FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_seeds_and_some_mutations_of_them_break_no_rule(name: str, made: dict[str, seeds.Seeds]) -> None:
    target = targets.TARGETS[name]
    with targets.prepared(target) as folder:
        given = list(made[name].values())
        for data in given[-12:]:
            assert targets.attempt(target, data, folder=folder, thorough=True) is None
        for number in range(30):
            data = mutated(Random(number), given, target.structured)
            assert targets.attempt(target, data, folder=folder, number=number) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", FEW)
def test_good_seeds_are_accepted(name: str, made: dict[str, seeds.Seeds]) -> None:
    target = targets.TARGETS[name]
    with targets.prepared(target) as folder:
        for seed, data in made[name].items():
            (folder / target.file).write_bytes(data)
            scan = api.scan(folder / target.file)
            assert scan.exit_code() in (0, 1) or seed.startswith("hostile"), (seed, scan.findings)


def test_every_format_has_seeds() -> None:
    assert set(seeds.MAKERS) == set(targets.TARGETS)


def test_the_same_seed_makes_the_same_inputs(made: dict[str, seeds.Seeds]) -> None:
    for name in FEW:
        given, structured = list(made[name].values()), targets.TARGETS[name].structured
        first, second = (
            [mutated(Random(f"7 {number}"), given, structured) for number in range(20)] for _ in range(2)
        )
        assert first == second


def _crash(data: bytes) -> None:
    if b"\xff" in data:
        raise IndexError("a bug")


def _write(data: bytes) -> None:
    with open("/dev/null", "w") as file:
        file.write("x")


def _connect(data: bytes) -> None:
    import socket

    socket.socket().close()


def _loop(data: bytes) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("check", "told"),
    [
        (_crash, "IndexError: a bug"),
        (_write, "open for writing"),
        (_connect, "socket"),
        (_loop, "seconds of processor time"),
    ],
)
def test_a_broken_rule_is_reported(check: object, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "SECONDS", 0.3)
    target = targets.Target(name="fake", file="fake.json", check=check)  # type: ignore[arg-type]
    with targets.prepared(target) as folder:
        trouble = targets.attempt(target, b'{"\xff": 1}', folder=folder)
    assert trouble is not None
    assert told in trouble.text


def test_a_failing_input_is_kept_with_the_command_that_replays_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = targets.Target(name="fake", file="fake.json", check=_crash)
    good = json.dumps({"a": [1, 2, 3]}).encode()
    found = run.fuzz(fake, [good, good + b"\xff"], seed=1, seconds=5, most=20, keep=tmp_path)
    printed = capsys.readouterr().out
    (kept,) = tmp_path.iterdir()
    assert found == 1
    assert kept.read_bytes() == good + b"\xff"
    assert f"python fuzz/run.py --format fake --replay {kept}" in printed
    monkeypatch.setitem(targets.TARGETS, "fake", fake)
    assert run.main(["--format", "fake", "--replay", str(kept)]) == 1
    assert "IndexError: a bug" in capsys.readouterr().out
