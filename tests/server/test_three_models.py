"""Three models behind one door: a mixture of all of them, and a policy that the repository brings along."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml
from tokenizers import Tokenizer

from python_backend.config import parse_deployment
from tests import oracle, reference
from tests.reference import Reader
from tests.server.clients import eventually, generate, metric
from tests.server.conftest import assert_nothing_left
from tests.server.repository import options
from tests.test_readme import policy_text
from tests.tiny_models import EOS_ID, TinyModel, tiny_model_dir
from tools.make_repository import repository_files, write
from tools.triton_server import TritonServer

pytestmark = pytest.mark.server

NAMES = ("small", "large", "huge")
WEIGHTS = (0.5, 0.3, 0.2)
MODELS = [TinyModel(family, seed) for seed, family in enumerate(("llama", "qwen2", "qwen3"), 31)]
PROMPT = [5, 17, 3, 44, 80]


def repository(folder: Path) -> Path:
    models = [{"name": name, "dtype": "float64", "kv_tokens": 1024, "threshold": 2} for name in NAMES]
    policy = {"name": "mixture", "params": dict(zip(NAMES, WEIGHTS, strict=True))}
    settings = {"models": models, "policy": policy, "policy_files": ["hesitant.py"]}
    settings["allowed_dirs"] = [str(tiny_model_dir(model)) for model in MODELS]
    text = yaml.safe_dump(settings)
    folder.mkdir(parents=True)
    (folder / "hesitant.py").write_text(policy_text())
    (folder / "deployment.yaml").write_text(text)
    for name, model in zip(NAMES, MODELS, strict=True):
        (folder / name).mkdir()
        (folder / name / "1").symlink_to(tiny_model_dir(model))
    write(repository_files(parse_deployment(text, "test")), folder)
    return folder


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("three")
    loaded = ("token_router", *NAMES)
    started = TritonServer(options(repository(folder / "repository"), folder / "run", load_models=loaded))
    with started:
        pids = list(started.stubs().values())
        yield started
    assert_nothing_left(started, pids)


def author(seed: int, position: int) -> int:
    draw = oracle.uniform(seed, position, oracle.AUTHOR_TAG)
    return next(model for model in range(3) if draw < sum(WEIGHTS[: model + 1]))


def expected(readers: list[Reader], seed: int, max_tokens: int) -> tuple[list[int], list[int]]:
    """(tokens, authors) of a greedy mixture, one model at a time."""
    text, authors = list(PROMPT), list[int]()
    while len(authors) < max_tokens and text[-1] != EOS_ID:
        authors.append(author(seed, len(text)))
        text.append(int(readers[authors[-1]].logits(text).argmax()))
    return text[len(PROMPT) :], authors


def test_a_mixture_of_three_is_the_sequential_one_token_for_token(three: TritonServer) -> None:
    models = [reference.load(tiny_model_dir(model), torch.float64) for model in MODELS]
    tokenizer = Tokenizer.from_file(str(tiny_model_dir(MODELS[0]) / "tokenizer.json"))
    text = tokenizer.decode(PROMPT)
    seen: list[int] = []
    for seed in range(12):
        body = generate(
            three, "token_router", text_input=text, max_tokens=20, seed=seed, return_routing=True
        ).body
        tokens, authors = expected([Reader(model) for model in models], seed, 20)
        assert body["text_output"] == tokenizer.decode(tokens)
        assert body["token_source"] == authors
        assert body["num_discarded_tokens"] == 0
        assert body["num_switches"] == sum(before != after for before, after in pairwise(authors))
        seen += authors
    assert set(seen) == {0, 1, 2}
    assert eventually(lambda: metric(three, "token_router_routed_fraction_count") == 12)


def test_a_policy_of_the_repository_is_chosen_by_name(three: TritonServer) -> None:
    chosen = {"routing_algorithm": "hesitant", "routing_config": json.dumps({"cutoff": 1.0})}
    asked = {"text_input": "w5 w6", "max_tokens": 24, "return_routing": True, **chosen}
    assert set(generate(three, "token_router", **asked).body["token_source"]) == {0, 1}
    unknown = generate(three, "token_router", text_input="w5", max_tokens=2, routing_algorithm="absent")
    assert "'absent' is unknown; known are" in unknown.error
    assert "hesitant" in unknown.error
