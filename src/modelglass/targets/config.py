"""A configuration that a model is built from, or a checkpoint for a builder of the user's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from modelglass.errors import MissingPackageError, TargetError
from modelglass.options import BuildOptions
from modelglass.report import Note
from modelglass.targets.kind import RUN, OpenModel, Runnable, report_nothing
from modelglass.targets.paths import CONFIG, check_exists, config_file, config_in, is_config_path
from modelglass.user_code import FORMS, only_installed

if TYPE_CHECKING:
    from modelglass.configs import Built


@dataclass(frozen=True)
class Config(Runnable):
    """The path of a configuration, or of a checkpoint, and how to build a model of it."""

    path: Path
    build: BuildOptions

    kind = "config"
    because = "a configuration describes how to build a model, and has no weights"
    advice: ClassVar[Mapping[str, str]] = {
        "stats": "pass the file with the weights, or code that loads them: file.py::function",
        "limits": "pass the file with the weights, or leave limits out",
    }
    lacks = frozenset({"stats"})
    has_own_inputs = True

    @property
    def takes(self) -> frozenset[str]:  # type: ignore[override]
        always = RUN | {"builder", "model_key", "trust", "framework"}
        return always | {"stats"} if self.build.builder is not None else always

    def __str__(self) -> str:
        return repr(str(self.path))

    @contextmanager
    def open(self, *, weightless: bool) -> Iterator[OpenModel]:
        """The model, without weights where it can be built without.

        Only what is proven to be a model class is called, unless the file is to be trusted.
        """
        build = self.build
        with ExitStack() as stack:
            if build.builder is None and not build.trust:  # before the first import of a framework
                stack.enter_context(only_installed(self.path))
            with self._untouched_process():
                built = stack.enter_context(self._build(weightless))
            yield OpenModel(
                native=built.native,
                inputs=built.inputs,
                notes=(*(Note(code=code, text=text) for code, text in built.notes), *self._notes()),
                weightless=weightless,
            )

    @contextmanager
    def _build(self, weightless: bool) -> Iterator[Built]:
        from modelglass import configs

        build = self.build
        if build.builder is None or is_config_path(self.path):
            with configs.built(
                self._config_file(),
                builder=build.builder,
                key=build.model_key,
                weightless=weightless,
                trust=build.trust,
            ) as found:
                yield found
            return
        section = configs.section(checkpoint_settings(self.path), build.model_key, str(self.path))
        with configs.built_by(build.builder, section, weightless=weightless) as found:
            yield found

    @contextmanager
    def _untouched_process(self) -> Iterator[None]:
        """What building changes in the framework's own state is put back once the model is built."""
        from modelglass import frameworks

        try:
            adapter = frameworks.adapter("torch")
        except ModuleNotFoundError as cause:
            if cause.name not in ("torch", "numpy"):
                raise
            extra = self._extras()
            raise MissingPackageError("torch", wanted_by="building a model", extra=extra) from cause
        with adapter.untouched_process():
            yield

    def _extras(self) -> str:
        """All that has to be installed to build the model."""
        from modelglass import configs

        if self.build.builder is not None:
            return "torch"
        file = self._config_file()
        section = configs.section(configs.read(file), self.build.model_key, str(file))
        return "torch,config" if configs.is_huggingface(section, file) else "torch"

    def _config_file(self) -> Path:
        found = config_file(self.path)
        if found is None:
            raise TargetError(
                f"no {CONFIG} in {str(self.path)!r}",
                hint=f"give --builder file.py::function, or name code: {FORMS}",
            )
        return found

    def _notes(self) -> Iterator[Note]:
        if not is_config_path(self.path):
            text = "the model was built anew from its configuration, without the weights of the checkpoint"
            yield Note(code="built-from-config", text=text)


def resolve(target: str | os.PathLike[str], build: BuildOptions) -> Config:
    """A configuration, or a checkpoint that a builder is given."""
    path = Path(target)
    check_exists(path)
    return Config(path, replace(build, serving=None))


def checkpoint_settings(path: Path) -> dict[str, Any]:
    """The configuration beside a checkpoint, or the hyper-parameters in it."""
    from modelglass import configs
    from modelglass.checkpoints import inspect_file

    beside = config_in(path if os.path.isdir(path) else path.parent)
    report = inspect_file(path, limits=None, progress=report_nothing)
    found: dict[str, Any] = {}
    for part in report.checkpoint.parts if report.checkpoint is not None else ():
        if part.kind == "hyper-parameters" and isinstance(part.value, dict):
            found |= part.value
    return found if found or beside is None else configs.read(beside)
