"""From an artefact's folder to a function that scores the rows of a step.

Reads `router.json` and `router.safetensors`, never a pickle. Everything that does not fit the served
model is refused at start, by the name of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from python_backend.runner.heads.card import WEIGHTS_FILE, HeadCard, read_card
from python_backend.runner.heads.modules import CiterMlp, DeferRow, R2RClassifier
from python_backend.runner.heads.named_tensors import NamedTensors
from router_backend.core.errors import ConfigError, RunnerError

ScoreFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(hidden [R, H], sampled tokens int64[R], raw sorted logits [R, >= topk]) -> float32[R] in [0, 1]."""


class RouterHead(NamedTuple):
    """A loaded artefact; call it like a `ScoreFunction`."""

    card: HeadCard
    score: ScoreFunction

    def __call__(self, hidden: Tensor, tokens: Tensor, topk_logits: Tensor) -> Tensor:
        return self.score(hidden, tokens, topk_logits)


def load_head(head_dir: Path, hidden_size: int, embedding: Tensor) -> RouterHead:
    """The head in `head_dir`, on the device of `embedding` [V, E], the served model's input embedding.

    Raises ConfigError that names the file and the key.
    """
    card = read_card(head_dir)
    if card.hidden_size != hidden_size:
        raise ConfigError(f"{head_dir}: hidden_size {card.hidden_size} where the model has {hidden_size}")
    tensors = NamedTensors(_weights(head_dir / WEIGHTS_FILE), str(head_dir / WEIGHTS_FILE))
    score = _score_function(card, tensors, embedding)
    tensors.refuse_rest()
    return RouterHead(card, score)


def _weights(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{path}: not a readable safetensors file: {error}") from error


def _score_function(card: HeadCard, tensors: NamedTensors, embedding: Tensor) -> ScoreFunction:
    device = embedding.device
    if card.kind == "citer_mlp":
        mlp = CiterMlp.take(tensors, card.hidden_size).to(device)
        return lambda hidden, tokens, topk_logits: mlp(hidden)
    if card.kind == "defer_row":
        row = DeferRow.take(tensors, card.hidden_size).to(device)
        return lambda hidden, tokens, topk_logits: row(hidden)
    classifier = R2RClassifier.take(tensors, card.hidden_size, embedding.shape[1]).to(device)
    topk = classifier.topk
    if topk != card.topk or topk > embedding.shape[0]:
        wrong = (
            f"logits_projection.weight: reads {topk} of {embedding.shape[0]} logits, card says {card.topk}"
        )
        raise ConfigError(f"{tensors.source}: {wrong}")
    return lambda hidden, tokens, topk_logits: classifier(hidden, embedding[tokens], topk_logits[:, :topk])


@dataclass(frozen=True, slots=True)
class HeadBook:
    """The heads of one runner by name."""

    heads: Mapping[str, RouterHead]

    @property
    def cutoffs(self) -> dict[str, float]:
        """What `router_backend.policies.base.Place.heads` wants."""
        return {name: head.card.cutoff for name, head in self.heads.items()}

    def topk(self, names: tuple[str, ...]) -> int:
        """How many logits the named heads read at most; RunnerError for a name that is not here."""
        return max((self._head(name).card.topk for name in names), default=0)

    def scores(
        self, names: tuple[str, ...], hidden: Tensor, tokens: Tensor, topk_logits: Tensor
    ) -> dict[str, Tensor]:
        """float32[R] by head for the sampling rows of a step, still on the device."""
        return {name: self._head(name)(hidden, tokens, topk_logits) for name in names}

    def _head(self, name: str) -> RouterHead:
        try:
            return self.heads[name]
        except KeyError:
            known = ", ".join(sorted(self.heads)) or "none"
            raise RunnerError(f"router head {name!r} is not loaded here; loaded: {known}") from None
