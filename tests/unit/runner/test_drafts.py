"""A drafted token is read as if its row ended before it: by the same engine, in the same numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from python_backend.runner import drafts
from python_backend.runner.base import ModelRunner
from python_backend.runner.pace import Pace
from python_backend.runner.script import Script
from python_backend.runner.scripted_runner import ScriptedRunner, ScriptedSettings
from python_backend.runner.torch_runner.runner import TorchRunner
from python_backend.runner.torch_runner.settings import TorchSettings
from router_backend.core.request import Sampling
from router_backend.scheduler.batch import Row, StepOutput
from tests.tiny_models import TinyModel, tiny_model_dir
from tests.unit.runner.torch_runner.directories import ALL_NEEDS, plan, row

TEXT = [3, 4, 5, 6, 7, 8]
BENT = Sampling(temperature=1.3, seed=9, logprobs=3, repetition_penalty=1.5, bad_words=((6, 20),))
SCRIPT = Script(vocab_size=90, uncertain_p=0.5, entropy_high=3.0)


def torch_runner() -> ModelRunner:
    model_dir = tiny_model_dir(TinyModel("qwen3", words=90))
    return TorchRunner(TorchSettings(model_dir, kv_tokens=256, block_size=4, dtype="float64"))


def scripted_runner() -> ModelRunner:
    return ScriptedRunner(ScriptedSettings(SCRIPT, 0, 64, 4), Pace(clock=lambda: 0.0))


ENGINES = {"torch": torch_runner, "scripted": scripted_runner}


def drafted(draft: int, blocks: list[int], sampling: Sampling = BENT, end: int = len(TEXT)) -> Row:
    history = {"history": TEXT[:end], "prompt_len": 2, "stop_ids": frozenset({1})}
    return row(TEXT[:end], 0, blocks, sampling=sampling, draft=draft, **history)


def columns(output: StepOutput) -> dict[str, Any]:
    return {name: getattr(output, name) for name in ("tokens", *drafts.COLUMNS)}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sampling", [BENT, Sampling()])
def test_every_reading_is_that_of_a_row_that_ends_there(engine: str, sampling: Sampling) -> None:
    runner = ENGINES[engine]()
    whole = drafted(3, [0, 1], sampling)
    rows = (drafted(0, [2, 3], sampling), whole, drafted(1, [4, 5], sampling))
    read = runner.execute(plan(*rows, needs=ALL_NEEDS))
    ends = [drafted(0, [6 + 2 * end, 7 + 2 * end], sampling, end) for end in (3, 4, 5, 6)]
    apart = runner.execute(plan(*ends, needs=ALL_NEEDS))

    assert read.draft is not None
    last = columns(apart)
    for name, column in columns(read).items():
        if column is not None:
            np.testing.assert_allclose(column, last[name][[3, 3, 3]], rtol=1e-6, atol=1e-9, err_msg=name)
    for name in ("tokens", "logprobs", "top_ids", "top_logprobs"):
        column = getattr(read.draft, name)
        if column is not None:
            np.testing.assert_allclose(column[1], last[name][:3], rtol=1e-6, atol=1e-9, err_msg=name)
            np.testing.assert_allclose(column[2][0], last[name][2], rtol=1e-6, atol=1e-9, err_msg=name)


def test_the_torch_engine_tells_how_unlikely_each_drafted_token_is() -> None:
    runner = torch_runner()
    read = runner.execute(plan(drafted(3, [0, 1], replace(BENT, logprobs=90))))
    assert read.draft is not None and read.draft.top_ids is not None and read.draft.top_logprobs is not None
    lines = zip(read.draft.top_ids[0], read.draft.top_logprobs[0], strict=True)
    told = [dict(zip(*line, strict=True)) for line in lines]
    expected = [-line[token] for line, token in zip(told, TEXT[3:], strict=True)]
    np.testing.assert_allclose(read.draft.nll[0], expected, rtol=1e-5)


def test_the_script_finds_its_own_tokens_likely_and_all_others_equally_unlikely() -> None:
    runner = ScriptedRunner(
        ScriptedSettings(replace(SCRIPT, tokens=(3, 4, 5, 6, 9, 8)), 0, 64, 4), Pace(clock=lambda: 0.0)
    )
    draft = runner.execute(plan(drafted(3, [0, 1]))).draft
    assert draft is not None and draft.logprobs is not None
    own = np.exp(draft.logprobs[0])
    others = (1.0 - own) / 89
    np.testing.assert_allclose(np.exp(-draft.nll[0]), [own[0], others[1], own[2]], rtol=1e-5)


def test_without_drafts_a_step_is_read_as_it_is() -> None:
    rows = (drafted(0, [0, 1]),)
    assert drafts.looks(rows) is rows
    last = np.array([5])
    assert drafts.looked_at(last, rows) is last
