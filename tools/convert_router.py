"""Turns a published router into an artefact that a runner loads: router.safetensors and router.json.

    python -m tools.convert_router r2r    default_router.pt  OUT --small S --large L --tokenizer DIR
    python -m tools.convert_router citer  mlp_iter_0123.pth  OUT --small S --large L --tokenizer DIR
    python -m tools.convert_router co_llm CHECKPOINT_DIR     OUT --small S --large L --tokenizer DIR

Offline, once. Pickles are opened with weights_only=True and nothing else, so a file cannot run code;
sizes are read from the tensors, never from a configuration. S and L say which pair the router was
trained for; DIR holds the small model's tokenizer.json. A refusal names the key.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import save_file

from python_backend.runner.heads.card import OPERATORS, WEIGHTS_FILE, HeadCard, make_card, write_card
from python_backend.runner.heads.vocabulary import tokenizer_sha
from router_backend.core.errors import ConfigError
from tools.published_routers import READERS, PublishedHead


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.convert_router",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("format", choices=sorted(READERS), help="whose format the source has")
    add("source", type=Path, help="file (r2r, citer) or folder (co_llm)")
    add("out", type=Path, help="folder to write")
    add("--small", required=True, help="model that the router reads")
    add("--large", required=True, help="model that it defers to")
    add(
        "--tokenizer",
        type=Path,
        required=True,
        metavar="DIR",
        help="where the small model's tokenizer.json is",
    )
    add("--cutoff", type=float, help="default: the source's own (r2r), 0.9 (citer), 0.5 (co_llm)")
    add("--share", type=float, help="large-model share measured at the cutoff, 0 to 1")
    return parser.parse_args(argv)


def card_for(head: PublishedHead, options: argparse.Namespace) -> HeadCard:
    """The card of `head`; ConfigError when no cutoff is known."""
    cutoff = head.cutoff if options.cutoff is None else options.cutoff
    if cutoff is None:
        raise ConfigError(f"{options.source}: common_args.threshold: missing; give --cutoff")
    values = {
        "algorithm": options.format,
        "kind": head.kind,
        "small": options.small,
        "large": options.large,
        "tokenizer_sha": tokenizer_sha(options.tokenizer),
        "hidden_size": head.hidden_size,
        "topk": head.topk,
        "cutoff": cutoff,
        "operator": OPERATORS[options.format],
        "share_at_cutoff": options.share,
        "source": options.source.name,
    }
    return make_card(values, str(options.source))


def convert(options: argparse.Namespace) -> HeadCard:
    """Read, check and write; ConfigError names the file and the key."""
    head = READERS[options.format](options.source)
    card = card_for(head, options)
    options.out.mkdir(parents=True, exist_ok=True)
    tensors = {key: tensor.float().contiguous() for key, tensor in head.tensors.items()}
    save_file(tensors, options.out / WEIGHTS_FILE)
    write_card(options.out, card)
    return card


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool; return the exit status."""
    options = parse_arguments(argv)
    try:
        card = convert(options)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    leaves = f"the small model leaves when score {card.operator} {card.cutoff:g}"
    print(f"wrote {options.out}: {card.kind}, hidden size {card.hidden_size}; {leaves}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
