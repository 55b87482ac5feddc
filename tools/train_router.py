"""Trains a router head on a local pair: CITER's MLP or R2R's classifier, ready to be served.

    python -m tools.train_router r2r   model_repository/small/1/heads/r2r   --demo 600
    python -m tools.train_router citer model_repository/small/1/heads/citer --prompts P.json --recall 0.9

The large model writes an answer to every prompt; wherever the small one would have written another token,
that token is one to route (R2R's judge of meaning is left out, so more counts as different). Prints recall
and share of routed tokens for several cutoffs on prompts that were held out, and writes the artefact with
the cutoff for --recall. Then name it in deployment.yaml: `heads: {r2r: small/1/heads/r2r}`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from python_backend.config import Deployment, load_deployment
from python_backend.roles.agreeing import read_agreement
from python_backend.roles.place import model_dir, tokenizer_dir
from python_backend.runner.heads.card import OPERATORS, WEIGHTS_FILE, make_card, write_card
from python_backend.runner.heads.vocabulary import tokenizer_sha
from python_backend.runner.torch_runner.runner import TorchRunner
from python_backend.runner.torch_runner.settings import TorchSettings
from python_backend.text.tokenizer import load_tokenizer
from router_backend.core.errors import ConfigError, RouterError
from tools.calibrate import DEPLOYMENT, questions
from tools.demo_pair.task import prompt_text, sample_chains
from tools.router_training.collecting import Pair, Prompt, Samples, collected, joined, renumbered
from tools.router_training.fitting import Cut, chosen, cuts, fitted, risks
from tools.router_training.networks import CiterHead, Head, R2RHead, Shape

TOPK = 100
"""R2R's."""
EMBEDDING = "model.embed_tokens.weight"
DEMO_SEED = 22
HELD_OUT = 0.25


def prompts(options: argparse.Namespace, deployment: Deployment, repository: Path) -> list[Prompt]:
    """Token ids of all prompts; ConfigError when there are too few to hold some out."""
    tokenizer = load_tokenizer(tokenizer_dir(deployment, repository))
    if options.prompts:
        texts = [question.prompt for question in questions(options.prompts, None)]
    else:
        chains = sample_chains(np.random.default_rng(DEMO_SEED), options.demo)
        texts = [prompt_text(chains, row) for row in range(options.demo)]
    if len(texts) < 4:
        raise ConfigError(f"{len(texts)} prompts are too few: give at least 4")
    return [tokenizer.encode(text) for text in texts]


def runners(deployment: Deployment, repository: Path, kv_tokens: int) -> Pair:
    """The first and the last model of the deployment, with room for `kv_tokens` each."""
    agreement = read_agreement(deployment, repository)
    small, large = (
        TorchRunner(
            TorchSettings(
                model_dir(deployment, repository, name),
                deployment.model(name).dtype,
                deployment.model(name).threads,
                kv_tokens,
                vocab_size=agreement.vocab_size,
            )
        )
        for name in (deployment.names[0], deployment.names[-1])
    )
    return Pair(small, large, agreement.eos_ids, min(TOPK, agreement.vocab_size))


def samples_of(
    deployment: Deployment, repository: Path, asked: Sequence[Prompt], options: argparse.Namespace
) -> tuple[Samples, int]:
    """What all prompts give, `options.batch` of them at a time; and how many logits a sample has."""
    longest = max(map(len, asked)) + options.max_tokens
    pair = runners(deployment, repository, options.batch * (longest + 16))
    parts = []
    for first in range(0, len(asked), options.batch):
        part = collected(pair, asked[first : first + options.batch], options.max_tokens)
        parts.append(renumbered(part, first))
    for runner in (pair.small, pair.large):
        runner.close()
    return joined(parts), pair.topk


def embedding(directory: Path) -> Tensor:
    """The small model's input embedding, float32[V, E]."""
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            if EMBEDDING in file.keys():  # noqa: SIM118 - not a mapping
                tensor: Tensor = file.get_tensor(EMBEDDING)
                return tensor.float()
    raise ConfigError(f"{directory}: no safetensors file has {EMBEDDING}")


def built(algorithm: str, shape: Shape, directory: Path) -> Head:
    return CiterHead(shape) if algorithm == "citer" else R2RHead(shape, embedding(directory))


def write(head: Head, cut: Cut, shape: Shape, options: argparse.Namespace, deployment: Deployment) -> None:
    """The artefact's folder."""
    card = {
        "algorithm": head.algorithm,
        "kind": head.kind,
        "small": deployment.names[0],
        "large": deployment.names[-1],
        "tokenizer_sha": tokenizer_sha(model_dir(deployment, options.deployment.parent, deployment.names[0])),
        "hidden_size": shape.hidden_size,
        "topk": shape.topk if head.algorithm == "r2r" else 0,
        "cutoff": cut.cutoff,
        "operator": OPERATORS[head.algorithm],
        "share_at_cutoff": cut.share,
        "source": "tools.train_router",
    }
    options.out.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.contiguous() for name, tensor in head.artefact().items()}
    save_file(tensors, options.out / WEIGHTS_FILE)
    write_card(options.out, make_card(card, "train_router"))


def run(options: argparse.Namespace) -> tuple[list[Cut], Cut]:
    if not 0 < options.recall <= 1:
        raise ConfigError(f"--recall: {options.recall} must be above 0 and at most 1")
    deployment, repository = load_deployment(options.deployment), options.deployment.parent
    asked = prompts(options, deployment, repository)
    samples, topk = samples_of(deployment, repository, asked, options)
    training, held_out = samples.split(HELD_OUT)
    shape = Shape(samples.hidden.shape[1], topk, options.width, options.blocks)
    torch.manual_seed(options.seed)
    head = built(options.algorithm, shape, model_dir(deployment, repository, deployment.names[0]))
    fitted(head, training, options.epochs, options.seed)
    found = cuts(risks(head, held_out), held_out.differs, options.algorithm)
    cut = chosen(found, options.recall)
    write(head, cut, shape, options, deployment)
    return found, cut


def told(found: Sequence[Cut], cut: Cut, out: Path) -> str:
    rows = [f"{one.recall:>7.1%} {one.cutoff:>9.4f} {one.share:>7.1%}" for one in found]
    lines = [f"{'recall':>7} {'cutoff':>9} {'routed':>7}", *rows, f"wrote {out}: cutoff {cut.cutoff:.4f}"]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """0 when the artefact was written, 1 when it could not be."""
    options = _parser().parse_args(argv)
    try:
        found, cut = run(options)
    except RouterError as error:
        print(f"train_router: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({"cuts": [asdict(one) for one in found], "chosen": asdict(cut)}))
    else:
        print(told(found, cut, options.out))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.train_router",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("algorithm", choices=("citer", "r2r"))
    add("out", type=Path, help="folder to write")
    add("--deployment", type=Path, default=DEPLOYMENT, help="its first and last model are the pair")
    add("--prompts", type=Path, help="JSON list of prompts")
    add("--demo", type=int, default=600, help="without --prompts: so many prompts of the demo's task")
    add("--recall", type=float, default=0.95, help="part of the differing tokens that the cutoff must catch")
    add("--max-tokens", type=int, default=64)
    add("--batch", type=int, default=64, help="prompts at once")
    add("--epochs", type=int, default=30)
    add("--width", type=int, default=128, help="of R2R's network; published: 1024")
    add("--blocks", type=int, default=2, help="of R2R's network; published: 6")
    add("--seed", type=int, default=1)
    add("--json", action="store_true", help="print JSON instead of a table")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
