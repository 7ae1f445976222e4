"""Every kind of model that transformers can configure by default, as a target: is it built, and does it run?

    python benchmarks/config_survey.py -o docs/benchmarks-configs.md
    python benchmarks/config_survey.py --only bert,t5 --json found.json

For each type in the mappings of base models and of causal language models, the default configuration is
written as a config.json and given to modelglass. `built`: a model came out. `ran`: a fake run with the inputs
that modelglass made reached its end; for this, stacks of layers are cut to few where the configuration allows
it. What transformers itself cannot build from the same configuration is told apart.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LIMIT = 60  # seconds of processor time for one model
CHUNK = 20  # models in one process, which then has their memory back
LAYERS = 2
COUNTS = (
    *("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"),
    *("num_encoder_layers", "num_decoder_layers", "encoder_num_layers", "decoder_num_layers", "depth"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--json", type=Path, help="keep all results here, one a line, and go on from those")
    parser.add_argument("--only", help="types of models, by commas")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return
    found = survey(set(options.only.split(",")) if options.only else None, options.jobs, options.json)
    text = document(found)
    if options.output:
        options.output.write_text(text)
    else:
        print(text)


def survey(only: set[str] | None, jobs: int, kept: Path | None) -> list[dict[str, Any]]:
    """What is found of every model; what an earlier survey has kept in that file is not looked for again."""
    found = [json.loads(line) for line in kept.read_text().splitlines()] if kept and kept.exists() else []
    known = {(row["kind"], row["type"]) for row in found}
    every = json.loads(ask([]))[0]
    tasks = [task for task in every if (only is None or task[1] in only) and (task[0], task[1]) not in known]
    chunks = [tasks[start : start + CHUNK] for start in range(0, len(tasks), CHUNK)]
    with ThreadPoolExecutor(jobs) as pool:
        for done in pool.map(surveyed, chunks):
            found += done
            if kept:
                kept.write_text("".join(json.dumps(row) + "\n" for row in found))
            print(f"{len(found)} of {len(tasks) + len(known)}", file=sys.stderr, flush=True)
    order = {(kind, name): index for index, (kind, name, _) in enumerate(every)}
    return sorted(found, key=lambda row: order[row["kind"], row["type"]])


def surveyed(tasks: list[list[str]]) -> list[dict[str, Any]]:
    """What is found of some models; a process that ends in the middle of one is begun again after it."""
    found = [json.loads(line) for line in ask(tasks).splitlines()] if tasks else []
    if len(found) == len(tasks):
        return found
    kind, name, class_name = tasks[len(found)]
    why = "the process ended"
    lost = {"kind": kind, "type": name, "class": class_name, "theirs": why, "built": why}
    return [*found, lost, *surveyed(tasks[len(found) + 1 :])]


def ask(tasks: list[list[str]]) -> str:
    """What a process of its own says about some models; without any, which there are."""
    done = subprocess.run(
        [sys.executable, __file__, "--worker"],
        input=json.dumps(tasks),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        timeout=3 * LIMIT * (len(tasks) + 1),
    )
    return done.stdout


def work() -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    import logging
    import warnings

    from torchvision_beside_cpu import make_torchvision_importable

    make_torchvision_importable()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    out, sys.stdout = sys.stdout, sys.stderr
    tasks = json.loads(sys.stdin.read())
    if not tasks:
        print(json.dumps([list(all_tasks())]), file=out)
    for kind, name, class_name in tasks:
        found = {"kind": kind, "type": name, "class": class_name, **looked_at(kind, name, class_name)}
        print(json.dumps(found), file=out, flush=True)


def all_tasks() -> Iterator[tuple[str, str, str]]:
    from transformers.models.auto import modeling_auto as auto

    for kind, mapping in (
        ("base", auto.MODEL_MAPPING_NAMES),
        ("causal", auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    ):
        for name, found in mapping.items():
            yield kind, name, found if isinstance(found, str) else found[0]


def looked_at(kind: str, name: str, class_name: str) -> dict[str, Any]:
    """Whether transformers builds it, whether we do, and whether it runs."""
    import torch
    import transformers

    found: dict[str, Any] = {}

    auto = transformers.AutoModel if kind == "base" else transformers.AutoModelForCausalLM

    def theirs() -> int:
        config = transformers.AutoConfig.for_model(name)
        with torch.device("meta"):
            model = auto.from_config(config)
        return sum(each.numel() for each in model.parameters())

    found["theirs"], their_params = attempt(theirs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.json")
        found["built"], our_params = attempt(lambda: built(path, name, class_name))
        found["same"] = their_params == our_params
        if found["built"] is None:
            began = time.monotonic()
            found["ran"], ran = attempt(lambda: run(path, name, class_name))
            found |= ran or {}
            found["seconds"] = round(time.monotonic() - began, 2)
    return found


def attempt(work: Any) -> tuple[str | None, Any]:
    """None and the result, or what went wrong."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"longer than {LIMIT} s")

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)  # what others do with the machine does not count
    try:
        return None, work()
    except BaseException as error:  # noqa: BLE001 (whatever a model raises is the answer)
        text = " ".join(str(getattr(error, "problem", error)).split())
        return f"{type(error).__name__}: {text[:300]}", None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def write(path: Path, name: str, class_name: str, layers: int | None) -> bool:
    """Write the default configuration, cut to so many layers; whether there was anything to cut."""
    import transformers

    config = transformers.AutoConfig.for_model(name)
    was_cut = layers is not None and cut(config, layers)
    config.architectures = [class_name]
    path.write_text(config.to_json_string())
    return was_cut


def cut(config: Any, layers: int) -> bool:
    """Shorten the stacks of a configuration, with the lists that say what each of their layers is."""
    done = False
    for key, value in list(vars(config).items()):
        if hasattr(value, "model_type") and hasattr(value, "to_dict"):
            done |= cut(value, layers)
        elif key in COUNTS and isinstance(value, int) and value > layers:
            lists = {name: each for name, each in vars(config).items() if is_list_of(each, value)}
            kept = max([layers, *map(until_all_kinds, lists.values())])
            if kept < value:
                for name, each in lists.items():
                    setattr(config, name, each[:kept])
                setattr(config, key, kept)
                done = True
    return done


def is_list_of(value: Any, layers: int) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == layers and layers > 1


def until_all_kinds(kinds: list[Any]) -> int:
    """The shortest beginning of a list that has everything that is in it."""
    return max(kinds.index(each) for each in kinds) + 1


def built(path: Path, name: str, class_name: str) -> int:
    from modelglass.api.building import build

    write(path, name, class_name, None)
    with build(path) as found:
        assert type(found.native).__name__ == class_name
        return sum(each.numel() for each in found.native.parameters())


def run(path: Path, name: str, class_name: str) -> dict[str, Any]:
    """A run of the model with fewer layers, or with all of them where it cannot do with fewer."""
    import modelglass as mg

    report = None
    if write(path, name, class_name, LAYERS):
        _, report = attempt(lambda: mg.inspect(path, "auto"))
    if report is None or report.run.failure is not None:
        write(path, name, class_name, None)
        report = mg.inspect(path, "auto")
    failed = report.run.failure
    given = {value.name: "x".join(map(str, value.shape or ())) for value in report.run.inputs}
    if failed is not None:
        where = failed.module or "(root)"
        raise RuntimeError(f"{where} raised {failed.error}: {failed.message} | given {given}")
    left_out = [name for note in report.notes if note.code == "inputs-left-out" for name in note.where]
    return {"inputs": given, "left_out": left_out, "mode": report.run.mode}


def document(found: list[dict[str, Any]]) -> str:
    import transformers

    lines = [
        "# Configurations of transformers as targets",
        "",
        "Every type in the mappings of base models and of causal language models of transformers "
        f"{transformers.__version__}: its default configuration, written as a `config.json`, is the target.",
        "",
        "- *Transformers builds*: `from_config` of `AutoModel` and `AutoModelForCausalLM`, on meta.",
        "- *Built*: modelglass made a model of it.",
        "- *Ran*: a fake run reached its end with the inputs that modelglass made. For this, stacks of",
        "  layers are cut to few, where the configuration allows it, to save time.",
        "",
        "A default configuration is no model that anybody uses, and many contradict themselves; what they",
        "raise is quoted.",
        "",
        "    python benchmarks/config_survey.py -o docs/benchmarks-configs.md",
        "",
    ]
    partly = [row for row in found if row.get("left_out")]
    further = [
        "",
        f"{len(partly)} of those that ran take pictures, films or sound, too, and ran without: by default "
        "their parts do not fit together, or what they need is not known.",
    ]
    return "\n".join([*lines, *summary(found), *further, *failures(found)]) + "\n"


def summary(found: list[dict[str, Any]]) -> Iterator[str]:
    yield "| mapping | types | transformers builds | built | with the same parameters | ran |"
    yield "|---|---|---|---|---|---|"
    for kind in ("base", "causal"):
        rows = [row for row in found if row["kind"] == kind]
        good = [row for row in rows if row["built"] is None]
        figures = (
            len(rows),
            sum(row["theirs"] is None for row in rows),
            len(good),
            sum(bool(row.get("same")) for row in good),
            sum(row.get("ran", "") is None for row in good),
        )
        yield f"| {kind} | {' | '.join(map(str, figures))} |"


def failures(found: list[dict[str, Any]]) -> Iterator[str]:
    for title, key in (("Not built", "built"), ("Built, and not run", "ran")):
        rows = [row for row in found if row.get(key)]
        alone = sum(row["theirs"] is None for row in rows)
        yield ""
        yield f"## {title}: {len(rows)}"
        if key == "built":
            yield ""
            yield f"Of these, transformers builds {alone} from the same configuration."
        yield ""
        groups: dict[str, list[str]] = defaultdict(list)
        for row in rows:
            groups[reason(row[key])].append(f"`{row['type']}` ({row['kind']})")
        for text, names in sorted(groups.items(), key=lambda each: -len(each[1])):
            yield f"- {text}: {', '.join(names)}"


def reason(text: str) -> str:
    """What was raised, without the folder and the inputs; some say it in many words."""
    said = text.partition(" | given")[0].replace("`", "'")
    said = re.sub(r"\S*/config\.json: ", "", said)
    said = re.sub(r"^(TargetError|RuntimeError): ", "", said)
    said = re.sub(r" from '/.*", "", said)  # where a package is on this machine
    said = re.sub(r"^(building|reading it as) an? (\w+)", "", said).strip()
    return said[:200].replace("|", "/").replace("<", "&lt;")


if __name__ == "__main__":
    main()
