"""What every process reads at start, from real model directories."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from python_backend.agreement import Agreement
from python_backend.config import Deployment
from python_backend.roles.agreeing import TokenShelf, read_agreement
from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex, PolicySpec
from tests.tiny_models import TinyModel, frozen, tiny_model_dir, write_tokenizer
from tests.unit.runner.heads.test_loading import artefact

NARROW = TinyModel("qwen2", seed=1, words=90, vocab_rows=93, fields=frozen(eos_token_id=[1, 7]))
WIDE = TinyModel("qwen3", seed=2, words=90, vocab_rows=128)


def deployment(*folders: Path, **settings: Any) -> Deployment:
    models = [{"name": f"m{index}", "model_dir": str(path)} for index, path in enumerate(folders)]
    return Deployment.model_validate({"models": models, **settings})


def test_a_padded_pair_agrees_on_the_real_vocabulary_and_on_all_end_tokens(tmp_path: Path) -> None:
    pair = deployment(tiny_model_dir(NARROW), tiny_model_dir(WIDE))

    assert read_agreement(pair, tmp_path) == Agreement(90, frozenset({1, 7}))


def test_a_tokenizer_of_the_fronts_own_must_agree_too(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, 88)
    pair = deployment(tiny_model_dir(NARROW), tiny_model_dir(WIDE), front={"tokenizer_dir": "."})

    assert read_agreement(pair, tmp_path).vocab_size == 88


def test_a_pair_of_two_vocabularies_does_not_start(tmp_path: Path) -> None:
    other = shutil.copytree(tiny_model_dir(WIDE), tmp_path / "other")
    text = (other / "tokenizer.json").read_text().replace('"w41"', '"Haus"')
    (other / "tokenizer.json").write_text(text)

    with pytest.raises(ConfigError, match=r"'m0' and 'm1' do not share .* id 41 is 'w41' and 'Haus': choose"):
        read_agreement(deployment(tiny_model_dir(NARROW), other), tmp_path)


def test_the_demo_pair_of_the_repository_agrees() -> None:
    root = Path(__file__).parents[3] / "model_repository"
    pair = deployment(root / "small" / "1", root / "large" / "1")

    assert read_agreement(pair, root).vocab_size == 128


def test_scripted_models_say_what_they_write(tmp_path: Path) -> None:
    for name, size in (("a", 50), ("b", 60)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"vocab_size": size, "eos_ids": [size - 1, 3]}))
    models = [{"name": name, "engine": "scripted", "script": f"{name}.json"} for name in "ab"]

    found = read_agreement(Deployment.model_validate({"models": models}), tmp_path)

    assert found == Agreement(50, frozenset({3, 49}))


def test_router_heads_are_known_everywhere_by_their_cards(tmp_path: Path) -> None:
    row = {"row": torch.zeros(32)}
    artefact(tmp_path / "heads" / "defer", "co_llm", row, hidden_size=32, cutoff=0.4)
    models = [
        {"name": "small", "model_dir": str(tiny_model_dir(NARROW)), "heads": {"co_llm": "heads/defer"}},
        {"name": "large", "model_dir": str(tiny_model_dir(WIDE))},
    ]
    pair = Deployment.model_validate({"models": models})

    agreement = read_agreement(pair, tmp_path)

    assert agreement.heads == {"small": {"co_llm": 0.4}}
    for model in range(2):
        agreement.book(pair, ModelIndex(model)).router(PolicySpec("co_llm"))
    with pytest.raises(ConfigError, match=r"citer.head: 'citer' is not loaded on small; loaded: co_llm"):
        agreement.book(pair, ModelIndex(1)).router(PolicySpec("citer"))


def test_tokens_are_bytes_and_a_file_that_models_share_is_read_once() -> None:
    root = Path(__file__).parents[3] / "model_repository" / "small" / "1"
    shelf = TokenShelf()
    small, large = (shelf.vocabulary(name, root.parents[1] / name / "1") for name in ("small", "large"))

    assert sorted(small.tokens) == list(range(128))
    assert all(isinstance(token, bytes) for token in small.tokens.values())
    assert small.tokens is large.tokens, "the same file was read twice"
