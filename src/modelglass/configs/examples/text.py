"""Ids of tokens, and what goes with them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

from modelglass.configs.examples.facts import BATCH, DECODER_LENGTH, LENGTH, Facts, part
from modelglass.configs.examples.values import counted, ones, whole, zeros
from modelglass.report import huggingface_keys as hf

_MOST_IDS = 512  # that are looked through for ones without a meaning of their own
_CHOICES = 3


def batch(facts: Facts) -> int:
    """How many samples. A classifier that cannot tell padding takes one at a time."""
    classifies = facts.is_for("SEQUENCE_CLASSIFICATION")
    return 1 if classifies and getattr(facts.text, "pad_token_id", None) is None else BATCH


def shape(facts: Facts) -> tuple[int, ...]:
    if facts.has_choices:
        return (batch(facts), _CHOICES, length(facts))
    return (batch(facts), length(facts))


def length(facts: Facts) -> int:
    most = facts.number(*hf.POSITIONS, within=facts.text)
    return min(LENGTH, most or LENGTH)


def special_ids(facts: Facts) -> set[int]:
    """Ids that mean something: the end of a text, a place for an image."""
    found: set[int] = set()
    for config in facts.all_configs:
        for name, value in vars(config).items():
            if name.endswith(("_token_id", "_token_index", "_token_ids", "_id", "_token")):
                several = value if isinstance(value, (list, tuple)) else [value]
                found |= {each for each in several if isinstance(each, int) and not isinstance(each, bool)}
    return found


def plain_ids(facts: Facts, vocabulary: int) -> list[int]:
    """Ids of ordinary tokens."""
    special = special_ids(facts)
    # The first ones of most vocabularies are reserved.
    found = [each for each in range(min(vocabulary, _MOST_IDS)) if each not in special]
    return found[5:] or found or [0]


def vocabulary(facts: Facts) -> int:
    """Below this, every id has an embedding."""
    sizes = [facts.number(*hf.VOCABULARY, within=facts.text)]
    with suppress(NotImplementedError, AttributeError, TypeError):  # of models that have none
        sizes.append(getattr(facts.native.get_input_embeddings(), "num_embeddings", None))
    return min([size for size in sizes if isinstance(size, int) and size > 0] or [2])


def input_ids(facts: Facts) -> torch.Tensor:
    made = counted(shape(facts), plain_ids(facts, vocabulary(facts)))
    middle = length(facts) // 2
    if (id := _marking(facts, "question_token_id")) is not None:
        made[..., 0] = id  # what is asked, of models that look for it
    asks = facts.has_choices or facts.is_for("QUESTION_ANSWERING")
    if asks and (id := _marking(facts, "sep_token_id")) is not None:
        made[..., [middle - 1, middle, -1]] = id  # a question, and a text that has the answer
    pair = getattr(facts.config, "is_encoder_decoder", False)
    if pair and (id := _marking(facts, "eos_token_id")) is not None:
        made[..., -1] = id  # some classify what stands there
    return made


def _marking(facts: Facts, name: str) -> int | None:
    """The id of that name, where it is one of the vocabulary's."""
    id = getattr(facts.text, name, None)
    return id if isinstance(id, int) and 0 <= id < vocabulary(facts) else None


def with_places(facts: Facts, places: dict[int, tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids with places for features between them, and what each of them is a place of: 0 for text.

    `places` has, by such a type, the id of a place and how many there are in all samples together.
    """
    plain = plain_ids(facts, vocabulary(facts))
    first, rest = plain[:4], (plain * LENGTH)[4:LENGTH]
    row, types = [*first], [0] * len(first)
    for type, (id, number) in places.items():
        before, after = _around(facts, type)
        each = number // BATCH
        row += [*before, *[id] * each, *after]
        types += [*[0] * len(before), *[type] * each, *[0] * len(after)]
    row, types = [*row, *rest], [*types, *[0] * len(rest)]
    return whole([row] * BATCH), whole([types] * BATCH)


def _around(facts: Facts, type: int) -> tuple[list[int], list[int]]:
    """The ids that stand before and after places of a type, where there are such."""
    names = {1: ("vision", "image"), 2: ("vision", "video"), 3: ("audio",)}[type]
    marks = []
    for side in (("start", "bos", "begin"), ("end", "eos")):
        ids = (facts.number(f"{name}_{word}_token_id") for name in names for word in side)
        found = next((id for id in ids if id is not None), None)
        marks.append([] if found is None else [found])
    return marks[0], marks[1]


def coded_ids(facts: Facts) -> torch.Tensor:
    """Ids of a text and of the codes of a sound beside it, for each step."""
    streams = (facts.number("num_codebooks") or 0) + 1
    return counted((batch(facts), length(facts), streams), plain_ids(facts, vocabulary(facts)))


def attention_mask(facts: Facts) -> torch.Tensor:
    return ones(*shape(facts))


def decoder_input_ids(facts: Facts) -> torch.Tensor:
    decoder = part(facts.config, ("decoder", "decoder_config"))
    size = facts.number("decoder_vocab_size", hf.VOCABULARY[0], within=decoder or facts.text) or vocabulary(
        facts
    )
    streams = getattr(decoder, "num_channels", None)  # of codes that are one sound together
    # A classifier takes what the decoder gives where the text ends, and so at the same place.
    steps = length(facts) if facts.is_for("SEQUENCE_CLASSIFICATION") else DECODER_LENGTH
    rows = batch(facts) * (getattr(decoder, "num_codebooks", None) or 1)  # a row for each code of a sound
    form = (rows, steps, *([streams] if isinstance(streams, int) else []))
    return counted(form, plain_ids(facts, size))


def boxes(facts: Facts) -> torch.Tensor:
    """Where each token is on its page: a box with its second corner after its first."""
    made = zeros(*shape(facts), 4)
    made[..., 2:] = 10
    # Where patches of a picture have boxes, too, all are parts of the page.
    return made / 1000 if facts.takes("visual_bbox") else made


MAKERS: dict[str, Any] = {
    "input_ids": input_ids,
    "attention_mask": attention_mask,
    "decoder_input_ids": decoder_input_ids,
    "bbox": boxes,
}
