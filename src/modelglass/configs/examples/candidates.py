"""Ways to call a model, the fullest first: with text, pictures and sound, down to its main input alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice, product
from typing import Any

import torch

from modelglass.configs.examples import audio, further, modalities, text, vision
from modelglass.configs.examples.facts import BATCH, Facts
from modelglass.configs.examples.modalities import Modality

MAKERS: dict[str, Any] = {**text.MAKERS, **vision.MAKERS, **audio.MAKERS, **further.MAKERS}
Given = dict[str, Any]
Way = Callable[[], Given | None]
_MOST_FORMS = 10
_MOST_TOGETHER = 16
_MOST_SINGLE = 4
_MASKS = {1: "image_embeds_position_mask"}  # of places, beside a text that has no id for them


def candidates(facts: Facts) -> list[Way]:
    """Ways to make arguments by name, each when it is called; None where a way is none after all."""
    there = modalities.present(facts)
    # What a class that is in none of the library's tables is for, only trying can tell.
    unlisted: list[Way] = [] if facts.tables else [partial(_plain, replace(facts, tried_with_choices=True))]
    if _is_plain(facts, there):
        return [partial(_plain, facts), *unlisted]
    ways: list[Way] = []
    for chosen in _choices(there):
        if facts.takes("input_ids"):
            ways.append(partial(_mixed, facts, chosen))
        if not facts.takes("input_ids") or any(modalities.place_id(facts, each) is None for each in chosen):
            ways += _forms(facts, chosen)
    bare = [facts.main, *facts.required]
    last: list[Way] = [partial(_plain, facts), partial(_made, facts, bare)]
    if facts.number("num_codebooks") and facts.takes("input_ids"):
        last.append(lambda: {"input_ids": text.coded_ids(facts)})
    if facts.takes("encoder_hidden_states"):
        last.append(lambda: {**_plain(facts), **_made(facts, ["encoder_hidden_states"])})
    single: list[Way] = [partial(_single, way) for way in ways[:_MOST_SINGLE]]
    return [*ways, *last, *single, *unlisted]


def _is_plain(facts: Facts, there: list[Modality]) -> bool:
    """Whether there is nothing to choose: a model of text, or of something else that must be there."""
    crossed = getattr(facts.config, "add_cross_attention", False)
    known = facts.takes(facts.main) and all(name in MAKERS for name in (facts.main, *facts.required))
    return known and not there and not crossed and not facts.number("num_codebooks")


def optional(facts: Facts) -> list[str]:
    """Pictures, films and sound that a model takes beside its main input, by the names of the arguments."""
    found = (name for each in modalities.present(facts) for name in each.values if facts.takes(name))
    return list(found)


def _choices(there: list[Modality]) -> Iterator[list[Modality]]:
    """All of them, then one by one."""
    if len(there) > 1:
        yield there
    for each in there:
        yield [each]


def _plain(facts: Facts) -> Given:
    """The main input, text, and what must be there."""
    # Words and pictures are given as such where they are something that a model takes as its inputs.
    known = facts.takes("input_ids") or facts.takes("pixel_values")
    main = [] if facts.main == "inputs" and known else [facts.main]
    names = [*main, *facts.required, "input_ids", *further.wanted(facts), "decoder_input_ids"]
    if facts.takes("shared_kv_states"):
        names.append("inputs_embeds")
    if facts.takes("input_ids"):
        names.append("attention_mask")
    return _made(facts, names)


def _made(facts: Facts, names: list[str]) -> Given:
    wanted = (name for name in dict.fromkeys(names) if facts.takes(name) and name in MAKERS)
    return {name: MAKERS[name](facts) for name in wanted}


def _forms(facts: Facts, chosen: list[Modality]) -> Iterator[Way]:
    """The plain arguments, with those of the modalities in each of their forms."""
    if not chosen:
        return

    def given(*indices: int) -> Given:
        made = _plain(facts)
        for modality, index in zip(chosen, indices, strict=True):
            made |= next(islice(modalities.forms(facts, modality), index, None))
        return made

    numbers = [range(sum(1 for _ in islice(modalities.forms(facts, each), _MOST_FORMS))) for each in chosen]
    for indices in islice(sorted(product(*numbers), key=sum), _MOST_TOGETHER):
        yield partial(given, *indices)


def _single(way: Way) -> Given | None:
    """One sample of what a way makes: there are models that take no more at a time."""
    made = way()
    return made and {name: _first_sample(value) for name, value in made.items()}


def _first_sample(value: Any) -> Any:
    return value[:1] if isinstance(value, torch.Tensor) and len(value) == BATCH else value


def _mixed(facts: Facts, chosen: list[Modality]) -> Given | None:
    """Text with as many places as there are features."""
    made = _plain(facts)
    found: dict[int, tuple[int, int]] = {}
    for modality in chosen:
        id = modalities.place_id(facts, modality)
        mask = _MASKS.get(modality.token_type)
        if id is None and mask is not None and facts.takes(mask):
            id = text.plain_ids(facts, text.vocabulary(facts))[0]
        placed = modalities.placed(facts, modality)
        if id is None or placed is None:
            return None
        found[modality.token_type] = id, placed[1]
        made |= placed[0]
    ids, types = text.with_places(facts, found)
    made["input_ids"] = ids
    if facts.takes("attention_mask"):
        made["attention_mask"] = torch.ones_like(ids)
    if facts.takes("mm_token_type_ids"):
        made["mm_token_type_ids"] = types
    masks = ((type, name) for type, name in _MASKS.items() if type in found and facts.takes(name))
    made |= {name: (types == type).long() for type, name in masks}
    return made
