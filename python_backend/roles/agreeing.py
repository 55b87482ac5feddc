"""Reads what all processes of a server must see alike from the files that they share.

Every process does this at start, before it loads or admits anything; what does not fit together is a
ConfigError that keeps the server from starting.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from python_backend.agreement import Agreement
from python_backend.config import Deployment
from python_backend.model_settings import ModelSettings
from python_backend.roles.place import end_ids, model_dir, tokenizer_dir
from python_backend.roles.policy_files import load_policies
from python_backend.runner.heads.card import read_card
from python_backend.runner.script import load_script
from python_backend.text.pair_check import ModelVocabulary, shared_vocabulary
from python_backend.text.tokenizer import load_tokenizer
from router_backend.core.errors import ConfigError
from router_backend.core.request import ModelIndex

FRONT_ROWS = 2**31
"""The front's tokenizer has no logits that could end earlier."""


def read_agreement(deployment: Deployment, repository: Path) -> Agreement:
    """ConfigError names the models that do not fit together, or the file that is at fault."""
    vocabularies = list(_vocabularies(deployment, repository))
    scripted = list(_scripted(deployment, repository))
    sizes = [size for size, _ in scripted]
    if vocabularies:
        sizes.append(shared_vocabulary(vocabularies))
    found = [vocabulary.eos_ids for vocabulary in vocabularies] + [ids for _, ids in scripted]
    vocab_size = min(sizes)
    eos_ids = frozenset(token for token in frozenset().union(*found) if token < vocab_size)
    policies = load_policies(deployment.policy_files, repository)
    return Agreement(vocab_size, eos_ids, cutoffs(deployment, repository), policies)


def cutoffs(deployment: Deployment, repository: Path) -> dict[str, dict[str, float]]:
    """By model that has router heads: the cutoff of each, as its card says."""
    return {model.name: _cutoffs(model, repository) for model in deployment.models if model.heads}


class TokenShelf:
    """Tokens and special ids by directory; a large tokenizer that several models share is read once."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[dict[int, bytes], frozenset[int]]] = {}

    def vocabulary(self, name: str, directory: Path) -> ModelVocabulary:
        """Of a Hugging Face model directory."""
        tokens, special = self._read(directory)
        return ModelVocabulary(name, tokens, special, _rows(directory), end_ids(directory))

    def _read(self, directory: Path) -> tuple[dict[int, bytes], frozenset[int]]:
        path = directory / "tokenizer.json"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if text not in self._known:
            tokenizer = load_tokenizer(directory)
            self._known[text] = (tokenizer.tokens(), tokenizer.special_ids)
        return self._known[text]


def _vocabularies(deployment: Deployment, repository: Path) -> Iterator[ModelVocabulary]:
    """One per model with a tokenizer; the front's own, if it has one, comes last."""
    shelf = TokenShelf()
    own = [model for model in deployment.models if model.engine != "scripted"]
    for model in own:
        yield shelf.vocabulary(model.name, model_dir(deployment, repository, model.name))
    if own and deployment.front.tokenizer_dir:
        found = shelf.vocabulary("front", tokenizer_dir(deployment, repository))
        yield replace(found, rows=FRONT_ROWS, eos_ids=frozenset())


def _scripted(deployment: Deployment, repository: Path) -> Iterator[tuple[int, frozenset[int]]]:
    """(vocabulary size, end tokens) of each scripted model."""
    for index, model in enumerate(deployment.models):
        if model.engine == "scripted":
            script = load_script(repository / script_file(model), ModelIndex(index))
            yield script.vocab_size, frozenset(script.eos_ids)


def script_file(model: ModelSettings) -> str:
    if not model.script:
        raise ConfigError(f"models.{model.name}.script: the scripted engine needs a JSON file")
    return model.script


def _rows(directory: Path) -> int:
    """Columns of the model's logits; unknown where config.json does not say."""
    path = directory / "config.json"
    return int(json.loads(path.read_text()).get("vocab_size", FRONT_ROWS)) if path.exists() else FRONT_ROWS


def _cutoffs(model: ModelSettings, repository: Path) -> dict[str, float]:
    return {name: read_card(repository / folder).cutoff for name, folder in model.heads.items()}
