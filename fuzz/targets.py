"""One target per format: bytes go in as a file, and whatever they are, the answer must keep to the rules.

Only our own errors may come out. Nothing is run, imported, written or connected; time and memory are bounded;
the same bytes get the same answer; and no output has a character that a terminal obeys.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from fuzz import mutations
from fuzz.mutations import Mutation

from hostile.runner import Peak, Watch
from modelglass import api, configs
from modelglass.errors import FileError, InspectError
from modelglass.formats import Limits, Reading, read
from modelglass.formats.documents import strict_json
from modelglass.formats.source import Source
from modelglass.report import Scan
from modelglass.targets.paths import is_config_path

SECONDS = 5.0  # of processor time, for one input
GROWTH_NBYTES = 400 << 20
EXIT_CODES = (0, 1, 3, 4)
RARELY, SELDOM = 16, 64  # one input in so many is rendered, or read twice and measured

# Control characters but the line feed, and surrogates.
UNPRINTABLE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

WATCH = Watch()
_hooked = False


class BrokenRuleError(Exception):
    """A rule that every input must keep was broken."""


class TooSlowError(BaseException):
    """Raised in the middle of what takes too long; nobody may catch it as an error of the file."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """How the bytes of a format become a file, and what changes its structure invites."""

    name: str
    file: str
    structured: tuple[Mutation, ...] = ()
    beside: Mapping[str, bytes] = field(default_factory=dict)  # files that the input may name
    opened: str = ""  # what is given to the reader, if not the file itself
    check: Callable[[bytes], None] = lambda data: None


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A broken rule, with the place that tells one bug from another."""

    text: str
    place: str
    trace: str


def attempt(
    target: Target, data: bytes, *, folder: Path, thorough: bool = False, number: int = 0
) -> Trouble | None:
    """Read one input; what it broke. One that is `thorough` is rendered, read twice and measured, too."""
    _watch()
    path = folder / target.file
    path.write_bytes(data)
    rendered = thorough or number % RARELY == 0
    measured = thorough or number % SELDOM == 0
    try:
        with _bounded(measured), _watched(folder):
            target.check(data)
            scanned, answer = _read(folder / target.opened if target.opened else path, rendered)
            if measured and _read(folder / target.opened if target.opened else path, rendered) != (
                scanned,
                answer,
            ):
                raise BrokenRuleError("the same bytes got another answer")
    except (Exception, TooSlowError) as trouble:  # noqa: BLE001 - that is what is searched for
        return _trouble(trouble)
    return None


@contextmanager
def prepared(target: Target) -> Iterator[Path]:
    """A folder with the files that inputs may name."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # a disk would take most of the time
    with tempfile.TemporaryDirectory(dir=memory) as name:
        folder = Path(name).resolve()
        for each, content in target.beside.items():
            (folder / each).write_bytes(content)
        yield folder


def _read(path: Path, rendered: bool) -> tuple[Scan, Any]:
    scanned = api.scan(path, isolate=False)  # in this process, which is watched
    if scanned.exit_code() not in EXIT_CODES:
        raise BrokenRuleError(f"the exit code is {scanned.exit_code()}")
    try:
        answer = _answer(path)
    except InspectError as error:
        if not isinstance(error, FileError) or error.exit_code not in EXIT_CODES:
            raise BrokenRuleError(f"the error is a {type(error).__name__}") from error
        answer = str(error)
        _check_text("error", api.told(error.problem))
    else:
        if not isinstance(answer, str) and any(
            finding.level in ("invalid", "limit") for finding in scanned.findings
        ):
            _check_invalid_is_told(path, scanned)
    if rendered:
        _render(scanned, answer)
        _read_values(path)
    return scanned, answer


def _answer(path: Path) -> Any:
    """The report of a file; of a configuration, which only code makes a model of, what it says."""
    return repr(configs.read(path)) if is_config_path(path) else api.inspect(path, run="none")


def _check_invalid_is_told(path: Path, scanned: Scan) -> None:
    """A scan reads more than a listing: what only a scan sees is not a contradiction, but a format is."""
    if scanned.files[0].format is None:
        raise BrokenRuleError("a listing took for a model what a scan did not")


def _render(scanned: Scan, answer: Any) -> None:
    for format, renderer in api.RENDERERS["scan"].items():
        for redact in (False, True):
            _check_output(f"scan as {format}", format, renderer(scanned, redact=redact))
    if not isinstance(answer, str):
        for format, renderer in api.RENDERERS["inspect"].items():
            _check_output(f"report as {format}", format, renderer(answer))


def _check_output(what: str, format: str, text: str) -> None:
    if format in ("json", "sarif"):
        json.loads(text, parse_constant=_no_constant)
    _check_text(what, text.replace("\r\n", "\n") if format == "csv" else text)


def _no_constant(token: str) -> None:
    raise BrokenRuleError(f"{token} in JSON")


def _check_text(what: str, text: str) -> None:
    found = UNPRINTABLE.search(text)
    if found is not None:
        raise BrokenRuleError(
            f"{found[0]!r} in the {what}: {text[max(0, found.start() - 40) : found.end() + 40]!r}"
        )


def _read_values(path: Path) -> None:
    """The first and the last values of every tensor."""
    from modelglass.formats.tensors.values import values

    reading = Reading(limits=Limits())
    try:
        read(path, reading)
        for each in values(reading).values():
            if not isinstance(each, str):
                numel = 1
                for size in each.shape:
                    numel *= size
                for start, stop in ((0, min(numel, 1000)), (max(0, numel - 1000), numel)):
                    if stop > start and len(each.read(start, stop)) != stop - start:
                        raise BrokenRuleError("not as many values as were asked for")
    except FileError:
        pass
    finally:
        reading.close()


# Rules


def _watch() -> None:
    """Begin to watch, once all is imported that every file needs."""
    global _hooked
    if not _hooked:
        import_module("modelglass.formats.tensors.values")
        for name in ("configs.yaml_values", "formats.documents.yaml", "formats.jinja.reach"):
            import_module(f"modelglass.{name}")
        sysconfig.get_paths()  # Python reads its own settings from a module, once
        sys.addaudithook(WATCH.hook)
        _hooked = True


@contextmanager
def _watched(folder: Path) -> Iterator[None]:
    """Nothing is run, imported, written or connected, and nothing outside of the folder is opened."""
    WATCH.clear()
    WATCH.on = True
    try:
        yield
    finally:
        WATCH.on = False
    # Our own version, and the style of pages, are read from where modelglass is installed.
    allowed = (str(folder), sys.prefix, sys.base_prefix, str(Path(api.__path__[0]).parent))
    outside = [path for path in WATCH.opened if not os.path.join(folder, path).startswith(allowed)]
    ours = {"modelglass", "numpy", "jinja2", "markupsafe", "yaml", "_yaml", *sys.stdlib_module_names}
    imported = [name for name in WATCH.imports if name.partition(".")[0] not in ours]
    for what, found in (("did", WATCH.forbidden), ("opened", outside), ("imported", imported)):
        if found:
            raise BrokenRuleError(f"reading {what} {found[:5]}")


@contextmanager
def _bounded(measured: bool) -> Iterator[None]:
    """Within its time and, where it is measured, its memory."""
    peak = Peak()
    if measured:
        peak.reset()
        before = peak.nbytes()
    signal.signal(signal.SIGVTALRM, _too_slow)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS * (2 if measured else 1))
    start = time.process_time()
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    seconds = time.process_time() - start
    if seconds > SECONDS * (2 if measured else 1):
        raise BrokenRuleError(f"took {seconds:.1f} seconds")
    if measured and peak.nbytes() - before > GROWTH_NBYTES:
        raise BrokenRuleError(f"took {(peak.nbytes() - before) >> 20} MiB of memory")


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlowError(f"took more than {SECONDS:.0f} seconds of processor time")


def _trouble(error: BaseException) -> Trouble:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "modelglass" in Path(frame.filename).parts] or list(frames)
    # One that is slow may be stopped anywhere: the file is what it has in common with others.
    where = f"{Path(ours[-1].filename).name}:{'' if isinstance(error, TooSlowError) else ours[-1].lineno}"
    text = f"{type(error).__name__}: {error}"[:1000]
    rule = re.sub(r"\d+", "N", text)[:60] if isinstance(error, BrokenRuleError) else type(error).__name__
    return Trouble(text=text, place=f"{rule} at {where}", trace="".join(traceback.format_exception(error)))


# Formats


def _strict_json(data: bytes) -> None:
    """What the strict parser takes, Python's own takes as well, and for the same value."""
    source = Source(lambda at, n: data[at : at + n], len(data), file="x")
    try:
        value = strict_json.loads(data, source, Limits())
    except FileError:
        return
    if json.loads(data) != value:
        raise BrokenRuleError("strict JSON gave another value than Python's own parser")


def _shard(name: str) -> bytes:
    header = f'{{"{name}":{{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}}}}'.encode()
    return len(header).to_bytes(8, "little") + header + bytes(24)


_M = mutations
_ZIP: tuple[Mutation, ...] = (_M.zip_members, _M.zip_members, _M.zip_members, _M.zip_fields)
_TARGETS: Sequence[Target] = (
    Target(
        name="safetensors",
        file="model.safetensors",
        structured=(_M.safetensors_header, _M.safetensors_header, _M.tokens),
    ),
    Target(
        name="index",
        file="model.safetensors.index.json",
        structured=(_M.tokens, _M.json_values),
        beside={"model-1.safetensors": _shard("a.weight"), "model-2.safetensors": _shard("b.weight")},
    ),
    Target(name="torch-zip", file="model.pt", structured=_ZIP),
    Target(name="torch-legacy", file="model.pt", structured=(_M.pickle_opcodes,)),
    Target(name="torch-tar", file="model.pt", structured=(_M.tar_members,)),
    Target(name="torchscript", file="model.pt", structured=_ZIP),
    Target(name="pt2", file="model.pt2", structured=_ZIP),
    Target(
        name="dcp",
        file=".metadata",
        structured=(_M.pickle_opcodes,),
        beside={"__0_0.distcp": bytes(4096)},
        opened=".",
    ),
    Target(name="pickle", file="model.pkl", structured=(_M.pickle_opcodes,)),
    Target(name="joblib", file="model.joblib", structured=(_M.pickle_opcodes,)),
    Target(name="gguf", file="model.gguf", structured=(_M.likely_length, _M.edge_number)),
    Target(
        name="onnx", file="model.onnx", structured=(_M.protobuf_fields,), beside={"outside.data": bytes(16)}
    ),
    Target(name="npy", file="model.npy", structured=(_M.npy_header,)),
    Target(name="npz", file="model.npz", structured=_ZIP),
    Target(name="json", file="config.json", structured=(_M.tokens, _M.json_values), check=_strict_json),
    Target(name="yaml", file="model.yaml", structured=(_M.tokens, _M.yaml_tokens)),
)
TARGETS = {target.name: target for target in _TARGETS}
