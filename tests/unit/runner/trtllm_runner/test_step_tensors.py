"""Row rules: the golden vector of trtllm.md, and what must hold in any batch."""

from __future__ import annotations

import random

import numpy as np

from python_backend.runner.trtllm_runner.contract import BY_NAME
from python_backend.runner.trtllm_runner.step_tensors import StepTensors, block_offsets, step_tensors
from router_backend.core.request import RequestId, Sampling
from router_backend.scheduler.batch import Row


def row(tokens: list[int], start: int, blocks: list[int], prompt_len: int) -> Row:
    return Row(RequestId("r"), tokens, start, blocks, True, Sampling(), 0, (), prompt_len)


GOLDEN = (
    row([5, 6, 7], 7, [40, 27, 49], 3),
    row([1], 5, [3, 8], 3),
    row([2], 11, [9, 1, 5], 11),
)
"""Blocks of four tokens, two layers: one resumes with three tokens behind seven, two decode."""
EXPECTED = {
    "input_ids": [5, 6, 7, 1, 2],
    "position_ids": [7, 8, 9, 5, 11],
    "last_token_ids": [3, 4, 5],
    "host_request_types": [0, 1, 1],
    "context_lengths": [3, 3, 11],
    "host_context_lengths": [3, 3, 11],
    "sequence_length": [10, 6, 12],
    "host_past_key_value_lengths": [10, 5, 11],
}


def golden_bytes(step: StepTensors) -> dict[str, bytes]:
    return {name: step.values[name].tobytes() for name in EXPECTED}


def test_the_golden_vector_comes_out_byte_for_byte() -> None:
    step = step_tensors(GOLDEN, num_layers=2, block_size=4)
    assert golden_bytes(step) == {
        name: np.array(values, "<i4").tobytes() for name, values in EXPECTED.items()
    }
    tables = step.values["kv_cache_block_offsets"]
    assert tables.shape == (1, 3, 2, 3)
    assert tables[0, 0].tobytes() == np.array([[160, 108, 196], [161, 109, 197]], "<i4").tobytes()
    assert tables[0, 1].tolist() == [[12, 32, 0], [13, 33, 0]]


def test_the_order_of_a_plan_does_not_change_what_the_engine_reads() -> None:
    """Context rows come first whatever the plan's order; `lines` finds each row's output again."""
    shuffled = (GOLDEN[1], GOLDEN[0], GOLDEN[2])
    step = step_tensors(shuffled, num_layers=2, block_size=4)
    assert golden_bytes(step) == golden_bytes(step_tensors(GOLDEN, num_layers=2, block_size=4))
    assert step.lines.tolist() == [1, 0, 2]


def test_the_first_token_of_a_text_is_a_context_row_and_a_row_may_be_its_own_prompt() -> None:
    step = step_tensors((row([9], 0, [2], 0), row([4], 6, [0, 1], 0)), num_layers=1, block_size=4)
    assert step.values["host_request_types"].tolist() == [0, 1]
    assert step.values["context_lengths"].tolist() == [1, 7]
    assert step.values["host_past_key_value_lengths"].tolist() == [1, 6]


def test_a_prompt_that_was_cut_short_is_never_longer_than_its_sequence() -> None:
    step = step_tensors((row([4], 3, [0], 40),), num_layers=1, block_size=4)
    assert step.values["context_lengths"].tolist() == [4]


def test_any_batch_keeps_the_contract() -> None:
    chance = random.Random(5)
    for _ in range(200):
        step, count = random_step(chance)
        values = step.values
        for name, value in values.items():
            assert str(value.dtype) in BY_NAME[name].dtypes and value.ndim in BY_NAME[name].ranks, name
            assert value.flags.c_contiguous, name
        types = values["host_request_types"].tolist()
        assert types == sorted(types) and len(types) == count
        ends = values["last_token_ids"]
        assert ends[-1] == len(values["input_ids"]) == len(values["position_ids"]) == step.num_tokens
        assert (np.diff(ends) > 0).all()
        assert (values["context_lengths"] <= values["sequence_length"]).all()
        assert sorted(step.lines.tolist()) == list(range(count))
        held = values["kv_cache_block_offsets"][0, :, 1]
        assert len(set(held[held > 0].tolist())) == np.count_nonzero(held), "two rows share a block"


def random_step(chance: random.Random) -> tuple[StepTensors, int]:
    count, free = chance.randint(1, 6), list(range(64))
    chance.shuffle(free)
    rows = []
    for _ in range(count):
        start, width = chance.choice((0, chance.randint(1, 20))), chance.choice((1, 1, chance.randint(1, 9)))
        blocks = [free.pop() for _ in range(-(-(start + width) // 4))]
        rows.append(row([chance.randrange(90) for _ in range(width)], start, blocks, chance.randint(1, 20)))
    return step_tensors(rows, num_layers=3, block_size=4), count


def test_blocks_that_are_reserved_but_not_reached_are_not_shown() -> None:
    offsets = block_offsets((row([1], 3, [5, 6, 7], 3),), num_layers=2, block_size=4)
    assert offsets.tolist() == [[[[20], [21]]]]
