"""Why vLLM does not build a model, in one sentence, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_MOST_TOLD = 300  # characters
_OTHERWISE = "without the framework vllm, the configuration is read by transformers"


@dataclass(frozen=True)
class BuildError:
    """What vLLM raised: the name of the exception, its text, and the architecture that was to be built."""

    kind: str
    text: str
    architecture: str
    version: str

    @property
    def explanation(self) -> tuple[str, str]:
        """The problem, and a hint."""
        for pattern, explain in _RULES:
            if match := re.search(pattern, f"{self.kind}: {self.text}", re.DOTALL):
                return explain(self, match)
        return f"vLLM {self.version} cannot build {self.architecture}: {self.line}", _hint(
            "check the settings"
        )

    @property
    def line(self) -> str:
        """The first line of the text that is not empty, shortened."""
        text = self.text
        if wrapped := re.search(r"Value error, (.*?)(?: \[type=|$)", text, re.DOTALL):
            text = wrapped[1]
        elif self.kind == "ValidationError":  # a head, then the setting, then what is wrong with it
            text = ": ".join(line.strip().partition(" [type=")[0] for line in text.splitlines()[1:3])
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return (lines[0] if lines else f"it raised {self.kind} without a message")[:_MOST_TOLD]


_Tell = Callable[[BuildError, "re.Match[str]"], tuple[str, str]]


def _hint(first: str) -> str:
    return f"{first}; {_OTHERWISE}"


def _unknown_architecture(error: BuildError, match: re.Match[str]) -> tuple[str, str]:
    problem = f"vLLM {error.version} has no architecture {error.architecture}"
    return problem, _hint("a newer vLLM may have it")


def _unknown_type(error: BuildError, match: re.Match[str]) -> tuple[str, str]:
    problem = f"vLLM's transformers does not know the model_type {match[1]!r} of {error.architecture}"
    return problem, "a newer transformers may know it"


def _foreign_code(error: BuildError, match: re.Match[str]) -> tuple[str, str]:
    problem = f"the code of {error.architecture} is not in vLLM but in files of its own, and not run here"
    return problem, "start an engine with trust_remote_code=True, and inspect that: mg.inspect(llm)"


def _not_divided(error: BuildError, match: re.Match[str]) -> tuple[str, str]:
    return (
        f"{error.architecture} cannot be divided so: {error.line}",
        "choose another number of ranks: tensor_parallel, --tensor-parallel",
    )


def _no_processor(error: BuildError, match: re.Match[str]) -> tuple[str, str]:
    problem = f"vLLM needs the {match[1]} of {error.architecture}, and its files are missing"
    return problem, _hint("put preprocessor_config.json, tokenizer.json and the like beside config.json")


def _no_setting(error: BuildError, match: re.Match[str]) -> tuple[str, str]:
    problem = f"vLLM's {error.architecture} needs a setting {match[1]!r} that the configuration does not have"
    return problem, _hint("take it from a config.json that was made for vLLM")


def _no_package(error: BuildError, match: re.Match[str]) -> tuple[str, str]:
    name = next(found for found in match.groups() if found)
    return (
        f"vLLM's {error.architecture} needs the package {name!r}, which is not installed",
        f"pip install {name}",
    )


def _no_quantization(error: BuildError, match: re.Match[str]) -> tuple[str, str]:
    problem = f"vLLM {error.version} does not know the quantization {match[1].strip()!r}"
    known = ", ".join(re.findall(r"'([^']+)'", match[2]))
    return problem, f"it knows {known}"


def _not_stored_so(error: BuildError, match: re.Match[str]) -> tuple[str, str]:
    problem = f"the configuration does not specify how its weights are quantized by {match[1]!r}"
    return problem, "take the config.json of a checkpoint that is, with its quantization_config"


def _no_such_choice(error: BuildError, match: re.Match[str]) -> tuple[str, str]:
    return f"vLLM {error.version} takes no {match[3]} as {match[1]}", f"it takes {match[2]}"


def _too_long(error: BuildError, match: re.Match[str]) -> tuple[str, str]:
    problem = f"{match[1]} tokens are more than {error.architecture} is made for, which is {match[2]}"
    return problem, "give a lower max_model_len, --max-model-len"


# The first that fits is used.
_RULES: tuple[tuple[str, _Tell], ...] = (
    (r"are not supported for now", _unknown_architecture),
    (r"trust_remote_code|custom code|execute the configuration file", _foreign_code),
    (r"model type `?([\w.-]+)`? but Transformers does not recognize", _unknown_type),
    (r"must be divisible by tensor|is not divisible by|not divisible|divide", _not_divided),
    (r"Can't load (?:the )?([\w ]+?) for '", _no_processor),
    (r"object has no attribute '(\w+)'", _no_setting),
    (r"No module named '([\w.]+)'|requires the ([\w-]+) library", _no_package),
    (r"Please install ([\w-]+)", _no_package),
    (r"Unknown quantization method: ([^.]*)\. Must be one of (.*?)\.", _no_quantization),
    (r"Cannot find the config file for ([\w-]+)", _not_stored_so),
    (r"\n(\w+)\S*\n\s+Input should be ([^\[]+) \[type=literal_error, input_value=(.*?), ", _no_such_choice),
    (r"max_model_len \((\d+)\) is greater than the derived max_model_len \(\D*?(\d+)", _too_long),
)
