"""Convert a GGUF file into a Hugging Face directory of float32 safetensors, for the torch engine.

python -m tools.convert_gguf SmolLM2-135M-Instruct.Q4_1.gguf smollm2-135m

Reads through transformers, which needs two more packages: pip install gguf accelerate. Nothing is fetched.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from router_backend.core.errors import ConfigError

MAGIC = b"GGUF"
PACKAGES = ("gguf", "accelerate")


def convert(source: Path, target: Path) -> None:
    """Writes config.json, model.safetensors, tokenizer.json and the chat template into `target`.

    ConfigError if `source` is no GGUF file, `target` holds something, or a package is missing.
    """
    _check(source, target)
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    network = AutoModelForCausalLM.from_pretrained(**where, dtype="float32")
    _forget_quantisation(network)
    network.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _check(source: Path, target: Path) -> None:
    try:
        with source.open("rb") as file:
            magic = file.read(len(MAGIC))
    except OSError as error:
        raise ConfigError(f"{source}: {error.strerror}") from error
    if magic != MAGIC:
        raise ConfigError(f"{source}: not a GGUF file")
    if target.exists() and any(target.iterdir()):
        raise ConfigError(f"{target}: not empty; name a new directory")
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(f"transformers needs more to read GGUF: pip install {' '.join(missing)}")


def _forget_quantisation(network: Any) -> None:
    """The weights are plain float32 by now, but transformers 5 refuses to save what it read from GGUF."""
    network.hf_quantizer = None
    network.is_quantized = False
    network.quantization_method = None
    if hasattr(network.config, "quantization_config"):
        del network.config.quantization_config


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.convert_gguf",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", type=Path, metavar="SRC.gguf", help="the file to read")
    parser.add_argument("target", type=Path, metavar="OUT_DIR", help="new directory to write")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Convert; 0, or 2 with the reason on stderr."""
    options = _parser().parse_args(argv)
    # Without it a path that transformers mistakes for a hub name costs half a minute of retries.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        convert(options.source, options.target)
    except ConfigError as error:
        print(f"convert_gguf: {error}", file=sys.stderr)
        return 2
    print(f"wrote {options.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
