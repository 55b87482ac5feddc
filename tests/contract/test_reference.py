"""The reference itself: its rules meet at their extremes, and it is what transformers generates."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from tests import reference
from tests.reference import LARGE, SMALL, Answer, Reader, Rule
from tests.tiny_models import TinyModel, tiny_model_dir

Pair = tuple[PreTrainedModel, PreTrainedModel]
PROMPT = [5, 17, 3, 44, 80]


@pytest.fixture(scope="module")
def pair() -> Pair:
    small, large = (tiny_model_dir(model) for model in (TinyModel("llama"), TinyModel("qwen3", 4)))
    return reference.load(small, torch.float64), reference.load(large, torch.float64)


def routed(pair: Pair, rule: Rule, eos_ids: tuple[int, ...] = ()) -> Answer:
    return reference.generate_routed((Reader(pair[0]), Reader(pair[1])), PROMPT, 24, eos_ids, rule)


def test_one_model_answers_as_transformers_generate_does(pair: Pair) -> None:
    theirs = pair[LARGE].generate(
        torch.tensor([PROMPT]), max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=0
    )

    assert reference.generate(pair[LARGE], PROMPT, 24).tokens == theirs[0, len(PROMPT) :].tolist()


def test_an_end_token_is_committed_and_ends(pair: Pair) -> None:
    whole = reference.generate(pair[SMALL], PROMPT, 24).tokens
    ended = reference.generate(pair[SMALL], PROMPT, 24, {whole[7]})

    assert (ended.tokens, ended.reason) == (whole[: whole.index(whole[7]) + 1], "stop")


@pytest.mark.parametrize("rule", [Rule("never"), Rule("r_stitch", cutoff=1.1)])
def test_never_routing_is_the_small_model_alone(pair: Pair, rule: Rule) -> None:
    alone = reference.generate(pair[SMALL], PROMPT, 24)

    assert routed(pair, rule) == Answer(alone.tokens, [SMALL] * 24)


@pytest.mark.parametrize(
    ("rule", "discards", "handoffs"),
    [(Rule("always"), 24, 47), (Rule("always", stay=None), 1, 1), (Rule("r_stitch", cutoff=-1.0), 1, 1)],
)
def test_always_routing_is_the_large_model_alone(
    pair: Pair, rule: Rule, discards: int, handoffs: int
) -> None:
    alone = reference.generate(pair[LARGE], PROMPT, 24)

    assert routed(pair, rule) == Answer(alone.tokens, [LARGE] * 24, discards, handoffs)


def test_the_entry_model_writes_first(pair: Pair) -> None:
    assert routed(pair, Rule("never", entry=LARGE)).authors == [LARGE] * 24
    assert routed(pair, Rule("r_stitch", cutoff=0.5, entry=LARGE)).authors[0] == LARGE


def test_between_the_extremes_both_write_and_every_discard_is_one_visit(pair: Pair) -> None:
    answer = routed(pair, Rule("r_stitch", cutoff=0.5))
    returns = answer.handoffs - answer.discards

    assert set(answer.authors) == {SMALL, LARGE} and len(answer.tokens) == 24
    assert returns in (answer.discards - 1, answer.discards)


def test_each_token_is_what_its_author_would_say_to_the_text_so_far(pair: Pair) -> None:
    answer = routed(pair, Rule("r_stitch", cutoff=0.5))
    text = PROMPT + answer.tokens

    for index, author in enumerate(answer.authors):
        before = text[: len(PROMPT) + index]
        assert reference.generate(pair[author], before, 1).tokens == [text[len(before)]]


def test_a_discarded_end_token_does_not_end(pair: Pair) -> None:
    small_first = reference.generate(pair[SMALL], PROMPT, 1).tokens[0]
    large_first = reference.generate(pair[LARGE], PROMPT, 1).tokens[0]
    assert small_first != large_first

    assert len(routed(pair, Rule("always"), (small_first,)).tokens) > 1


def test_it_knows_nothing_of_this_project() -> None:
    tree = ast.parse(Path(reference.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    ours = {"python_backend", "router_backend", "tools", "tests"}
    assert not ours & {name.partition(".")[0] for name in names}
