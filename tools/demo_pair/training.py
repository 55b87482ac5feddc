"""Training of one model of the demo pair.

Owns the two recipes. A recipe pins seeds and steps, never seconds, so that on one kind of CPU the same
weights come out however busy the machine is. The small model is stopped on purpose before it knows the
rare rules. The invariant: one thread, because the order of a sum depends on the number of threads.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy
from transformers import Qwen3Config, Qwen3ForCausalLM

from tools.demo_pair.task import training_batches
from tools.demo_pair.vocabulary import (
    ANSWER_TOKENS,
    BOS_ID,
    EOS_ID,
    PAD_ID,
    POSITIONS,
    WORDS,
    token_ids,
)

WARM_UP_STEPS = 100
FINAL_LEARNING_RATE_SHARE = 0.02

Progress = Callable[[int, float], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides the weights of one model."""

    name: str
    width: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int
    learning_rate: float
    steps: int
    seed: int
    batch_size: int = 32


SMALL = Recipe("small", 96, 3, 3, 3, 256, learning_rate=3e-3, steps=400, seed=11)
LARGE = Recipe("large", 192, 6, 6, 3, 512, learning_rate=2e-3, steps=1966, seed=12)
RECIPES = {recipe.name: recipe for recipe in (SMALL, LARGE)}


def model_config(recipe: Recipe) -> Qwen3Config:
    """Return a real Qwen3 configuration, so that the pair uses every code path of a real model."""
    return Qwen3Config(
        vocab_size=len(WORDS),
        hidden_size=recipe.width,
        intermediate_size=recipe.feed_forward,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        head_dim=32,
        max_position_embeddings=POSITIONS,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
    )


def learning_rate_share(step: int, steps: int) -> float:
    """Return the share of the peak rate at a step: linear warm-up, then a cosine to 2 %."""
    warm_up = min(WARM_UP_STEPS, steps)
    if step < warm_up:
        return (step + 1) / warm_up
    done = (step - warm_up) / max(1, steps - warm_up)
    cosine = 0.5 * (1.0 + math.cos(math.pi * done))
    return FINAL_LEARNING_RATE_SHARE + (1.0 - FINAL_LEARNING_RATE_SHARE) * cosine


def answer_loss(model: Qwen3ForCausalLM, tokens: torch.Tensor) -> torch.Tensor:
    """Return the mean loss on the answers alone; a prompt is random and teaches nothing."""
    logits = model(input_ids=tokens[:, :-1], logits_to_keep=ANSWER_TOKENS).logits
    return cross_entropy(logits.flatten(0, 1), tokens[:, -ANSWER_TOKENS:].flatten())


def train_steps(model: Qwen3ForCausalLM, recipe: Recipe) -> Iterator[float]:
    """Train in place; yield the loss of each step."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.1
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate_share(step, recipe.steps)
    )
    for chains in training_batches(recipe.seed, recipe.steps, recipe.batch_size):
        optimizer.zero_grad()
        loss = answer_loss(model, torch.from_numpy(token_ids(chains)))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        yield loss.item()


def train(recipe: Recipe, progress: Progress) -> Qwen3ForCausalLM:
    """Train one model; ``progress`` is told the number of finished steps and the last loss."""
    torch.set_num_threads(1)
    torch.manual_seed(recipe.seed)
    model = Qwen3ForCausalLM(model_config(recipe))
    for step, loss in enumerate(train_steps(model, recipe), start=1):
        progress(step, loss)
    return model


def trained_prompts(recipes: tuple[Recipe, ...]) -> set[tuple[int, ...]]:
    """Return the identity of every prompt that these trainings see."""
    return {
        key
        for recipe in recipes
        for chains in training_batches(recipe.seed, recipe.steps, recipe.batch_size)
        for key in chains.prompt_keys()
    }
