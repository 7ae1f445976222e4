"""Models that vLLM would serve, from their configuration alone: nothing is loaded, and no engine starts.

vLLM is imported, and its classes are built, in a process of its own that ends with the answer. Here neither
torch nor vLLM is imported.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from modelglass.errors import TargetError
from modelglass.frameworks.vllm import versions
from modelglass.frameworks.vllm.meta.child import SCRATCH
from modelglass.options import Progress
from modelglass.report import Engine, Observation, RankModel, Report, Run, Serving, codec

CONFIG = "config.json"
TIME_LIMIT = 300.0  # seconds; most models take 15 to 30
# The process; modules of the current folder do not come before installed ones there.
COMMAND = (sys.executable, "-P", "-m", "modelglass.frameworks.vllm.meta.child")
_PAUSE = 0.1  # seconds between two looks at the process
_MOST_TOLD = 300  # characters of what it wrote


def build_rank(
    path: Path | str, serving: Serving, *, progress: Progress | None = None, timeout: float = TIME_LIMIT
) -> Observation:
    """One rank of the model that a configuration describes, and all of it, as vLLM would build them.

    `path` is a folder with config.json, or such a file whatever its name.
    """
    report_progress = progress or _ignore_progress
    version = versions.require_vllm("a configuration as vLLM builds it")
    config = _config_file(Path(path))
    architecture = _architecture(config)
    report_progress("starting vLLM")
    with TemporaryDirectory(prefix=SCRATCH) as scratch:
        folder = str(_folder_of(config, Path(scratch)))
        order = {
            "folder": folder,
            "architecture": architecture,
            "version": version,
            "serving": asdict(serving),
        }
        answer = _run_process(order, Path(scratch), report_progress, timeout, str(config))
    found = _observation(answer, version)
    return replace(found, engine=_rename_model(found.engine, folder, str(path)))


def _rename_model(engine: Engine | None, folder: str, given: str) -> Engine | None:
    """The engine with the model called what the caller calls it, not what its process was given."""
    if engine is None:
        return None
    return replace(
        engine,
        components=tuple(
            replace(
                each,
                description=each.description.replace(folder, given),
                settings={key: given if value == folder else value for key, value in each.settings.items()},
            )
            for each in engine.components
        ),
    )


def _ignore_progress(text: str) -> None:
    return None


def _config_file(path: Path) -> Path:
    if not path.exists():
        raise TargetError(f"{path}: there is no such file or folder", hint="check the path")
    config = path / CONFIG if path.is_dir() else path
    if not config.is_file():
        raise TargetError(
            f"{path}: there is no {CONFIG} in this folder", hint=f"pass a folder with the {CONFIG} of a model"
        )
    return config


def _architecture(config: Path) -> str:
    """The class that the configuration names."""
    try:
        content = json.loads(config.read_bytes())
    except (OSError, ValueError, RecursionError) as cause:
        raise TargetError(
            f"{config}: this is not JSON: {cause}", hint="pass the config.json of a model"
        ) from cause
    names = content.get("architectures") if isinstance(content, dict) else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise TargetError(
            f"{config}: it does not name an architecture, which vLLM needs",
            hint='add the class of the model, such as "architectures": ["LlamaForCausalLM"]',
        )
    return str(names[0])


def _folder_of(config: Path, scratch: Path) -> Path:
    """The folder that vLLM is given: what else it looks for lies beside config.json, if anywhere."""
    if config.name == CONFIG:
        return config.parent.resolve()
    folder = scratch / "model"
    folder.mkdir()
    (folder / CONFIG).write_bytes(config.read_bytes())
    return folder


def _run_process(
    order: dict[str, Any], scratch: Path, report_progress: Progress, timeout: float, file: str
) -> dict[str, Any]:
    """What the process answers; an error where it refuses, dies or takes too long."""
    answer, progress, log = scratch / "answer.json", scratch / "progress.txt", scratch / "log.txt"
    line = json.dumps({**order, "answer": str(answer), "progress": str(progress)})
    with log.open("wb") as output, _process(output, scratch) as process:
        _send(process, line)
        ended = _wait(process, progress, report_progress, time.monotonic() + timeout)
    if not ended and not answer.exists():
        raise TargetError(
            f"{file}: vLLM did not build it within {timeout:g} s, and was stopped",
            hint="try again when the machine is less busy",
        )
    if not answer.exists():
        raise TargetError(
            f"{file}: the process that builds it in vLLM did not answer: {_describe_end(process, log)}",
            hint='see whether vLLM can be imported: python -c "import vllm"',
        )
    found: dict[str, Any] = json.loads(answer.read_text())
    if "problem" in found:
        raise TargetError(f"{file}: {found['problem']}", hint=str(found["hint"]))
    return found


@contextmanager
def _process(output: IO[bytes], scratch: Path) -> Iterator[subprocess.Popen[str]]:
    """The process; whatever happens, neither it nor one that it started is left behind."""
    process = subprocess.Popen(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=_environment(scratch),
        cwd=scratch,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            _kill(process)
        process.wait()
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()


def _kill(process: subprocess.Popen[str]) -> None:
    """End the process, and those that it started where a system knows them as one group."""
    if not hasattr(os, "killpg"):
        process.kill()
        return
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _environment(scratch: Path) -> dict[str, str]:
    """This process's, so that the same packages are found; what is written goes where it is removed."""
    places = ("TMPDIR", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
    return {
        **os.environ,
        **dict.fromkeys((*places, "HF_MODULES_CACHE", "XDG_CACHE_HOME", "MPLCONFIGDIR"), str(scratch)),
        **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS"), "1"),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_USE_MODELSCOPE": "0",
        "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry),
    }


def _send(process: subprocess.Popen[str], line: str) -> None:
    """Send the order. The pipe stays open: the process ends when it is closed."""
    if process.stdin is not None:
        with suppress(BrokenPipeError):  # it ended already, and its output has the reason
            process.stdin.write(line + "\n")
            process.stdin.flush()


def _wait(process: subprocess.Popen[str], progress: Path, report_progress: Progress, deadline: float) -> bool:
    """Pass on the progress of the process, until it ends. False: time is up."""
    shown = ""
    while time.monotonic() < deadline:
        try:
            process.wait(timeout=_PAUSE)
            return True
        except subprocess.TimeoutExpired:
            now = progress.read_text() if progress.exists() else ""
            if now != shown:
                shown = now
                report_progress(shown)
    return False


def _describe_end(process: subprocess.Popen[str], log: Path) -> str:
    """How a process ended that gave no answer."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if process.returncode < 0:
        return f"it was killed by signal {-process.returncode}, as happens when memory is short"
    return lines[-1][:_MOST_TOLD] if lines else f"its exit code is {process.returncode}"


def _observation(answer: dict[str, Any], version: str) -> Observation:
    rank = _report(answer["rank"])
    whole = _report(answer.get("whole", answer["rank"]))
    if rank.engine is None or whole.engine is None:
        raise ValueError("a rank was built without an engine")
    return Observation(
        model=rank.model,
        run=Run(mode="none"),
        notes=(*versions.version_notes(version), *rank.notes),
        engine=rank.engine,
        ranks=(RankModel(rank.engine.rank, rank.model, rank.engine.shards),),
        whole=RankModel(0, whole.model, whole.engine.shards),
    )


def _report(text: str) -> Report:
    report = codec.loads(text)
    if not isinstance(report, Report):
        raise ValueError("a rank was built, and this is something else")
    return report
