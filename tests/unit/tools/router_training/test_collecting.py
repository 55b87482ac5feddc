"""Labels are what two models, each alone, say to the same text."""

from __future__ import annotations

from python_backend.runner.torch_runner.runner import TorchRunner
from python_backend.runner.torch_runner.settings import TorchSettings
from tests import reference
from tests.reference import LARGE, SMALL
from tests.tiny_models import TinyModel, tiny_model_dir
from tools.router_training.collecting import Pair, Samples, collected, joined, renumbered

MODELS = (TinyModel("llama", 41), TinyModel("qwen3", 42))
PROMPTS = [[5, 17, 3], [44], [80, 2, 9, 30, 31, 32]]
EOS_IDS = frozenset({1, 40})
MAX_TOKENS = 12


def samples() -> Samples:
    small, large = (
        TorchRunner(TorchSettings(tiny_model_dir(model), kv_tokens=128, block_size=4)) for model in MODELS
    )
    return collected(Pair(small, large, EOS_IDS, topk=7), PROMPTS, MAX_TOKENS)


def test_the_small_model_is_asked_at_every_token_of_the_large_ones_answers() -> None:
    found = samples()
    models = [reference.load(tiny_model_dir(model)) for model in MODELS]

    for number, prompt in enumerate(PROMPTS):
        own = found.take(found.prompt == number)
        written = reference.generate(models[LARGE], prompt, MAX_TOKENS, EOS_IDS).tokens
        assert len(own) == len(written)
        reader = reference.Reader(models[SMALL])
        for index, token in enumerate(written):
            logits = reader.logits([*prompt, *written[:index]])
            assert int(own.tokens[index]) == int(logits.argmax())
            assert bool(own.differs[index]) == (int(logits.argmax()) != token)
            assert own.topk_logits[index].allclose(logits.topk(7).values, atol=1e-4)
    assert found.hidden.shape == (len(found), 32)


def test_parts_are_joined_with_prompt_numbers_of_their_own() -> None:
    part = samples()
    whole = joined([part, renumbered(part, 3)])
    assert len(whole) == 2 * len(part)
    assert sorted(set(whole.prompt.tolist())) == [0, 1, 2, 3, 4, 5]
