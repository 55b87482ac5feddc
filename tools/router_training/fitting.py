"""Training a head, and what a cutoff on its score catches and costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from router_backend.core.errors import ConfigError
from tools.router_training.collecting import Samples
from tools.router_training.networks import Head

BATCH = 256
RATE = 1e-3
RARE_WEIGHT_MAX = 10.0
RECALLS = (0.5, 0.8, 0.9, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Cut:
    """At `cutoff` of the artefact's score, `recall` of the differing tokens are routed."""

    recall: float
    cutoff: float
    share: float
    """Of all tokens, those that are routed."""


def fitted(head: Head, samples: Samples, epochs: int, seed: int) -> float:
    """Train `head` in place; the last epoch's mean loss. ConfigError when there is nothing to learn."""
    wrong = int(samples.differs.sum())
    if not 0 < wrong < len(samples):
        raise ConfigError(f"the models differ in {wrong} of {len(samples)} tokens: nothing to learn from")
    weight = torch.tensor(min(RARE_WEIGHT_MAX, (len(samples) - wrong) / wrong))
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(head.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, epochs))
    head.train()
    loss_mean = math.nan
    for _ in range(epochs):
        losses = []
        for rows in torch.randperm(len(samples), generator=generator).split(BATCH):
            batch = samples.take(rows)
            loss = binary_cross_entropy_with_logits(head(batch), batch.differs.float(), pos_weight=weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        schedule.step()
        loss_mean = sum(losses) / len(losses)
    head.eval()
    return loss_mean


@torch.inference_mode()
def risks(head: Head, samples: Samples) -> Tensor:
    """float32[N]: how likely the large model should write each token."""
    return torch.sigmoid(head(samples))


def cuts(risk: Tensor, differs: Tensor, algorithm: str, recalls: Sequence[float] = RECALLS) -> list[Cut]:
    """For each wished recall the cutoff that reaches it with the fewest routed tokens."""
    wrong = risk[differs].sort(descending=True).values
    if not len(wrong):
        raise ConfigError("the models never differ in the held-out prompts: give more prompts")
    found = []
    for recall in recalls:
        least = float(wrong[math.ceil(recall * len(wrong)) - 1])
        routed = risk >= least
        share = float(routed.float().mean())
        found.append(Cut(float(routed[differs].float().mean()), _cutoff(least, algorithm), share))
    return found


def chosen(found: Sequence[Cut], recall: float) -> Cut:
    """The cheapest cut that reaches `recall`."""
    return min((cut for cut in found if cut.recall >= recall), key=lambda cut: cut.share)


def _cutoff(risk: float, algorithm: str) -> float:
    """In terms of the score that the published rule compares: R2R risk >= cutoff, CITER 1 - risk < cutoff."""
    margin = 1e-6
    return max(0.0, risk - margin) if algorithm == "r2r" else min(1.0, 1.0 - risk + margin)
