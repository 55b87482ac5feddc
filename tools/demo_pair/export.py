"""Writes and reads the files of the demo pair: model directories and the list of prompts.

A model directory is a plain Hugging Face one, loadable by ``AutoModelForCausalLM`` and readable by a
loader written by hand. Nothing here may record where the files were written.
"""

import json
from pathlib import Path
from typing import Any

from transformers import GenerationConfig, Qwen3ForCausalLM

from tools.demo_pair.task import answer_text, held_out_chains, prompt_text
from tools.demo_pair.training import LARGE, SMALL, trained_prompts
from tools.demo_pair.vocabulary import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    build_tokenizer,
    tokenizer_config,
)

DEMO_PROMPTS = 200


def write_json(path: Path, content: Any) -> None:
    """Write readable JSON that ends with a newline."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def write_model(model: Qwen3ForCausalLM, directory: Path) -> None:
    """Write the weights, the configurations and the tokenizer of one model."""
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=BOS_ID, eos_token_id=EOS_ID, pad_token_id=PAD_ID, do_sample=False
    )
    model.save_pretrained(directory)
    add_older_names(directory / "config.json")
    build_tokenizer().save(str(directory / "tokenizer.json"))
    write_json(directory / "tokenizer_config.json", tokenizer_config())
    for path in directory.iterdir():
        path.chmod(0o644)  # safetensors writes files that a server under another user cannot read


def add_older_names(path: Path) -> None:
    """Add the names that transformers 4, TensorRT-LLM and most loaders written by hand look for."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    config["torch_dtype"] = config["dtype"]
    write_json(path, dict(sorted(config.items())))


def read_model(directory: Path) -> Qwen3ForCausalLM:
    """Load one model of the pair for evaluation, in fp32 on the CPU."""
    model: Qwen3ForCausalLM = Qwen3ForCausalLM.from_pretrained(directory, dtype="float32")
    return model


def write_prompts(path: Path) -> None:
    """Write the first held-out chains as text: the prompts and their only right answers."""
    chains = held_out_chains(trained_prompts((SMALL, LARGE)))
    rows = range(DEMO_PROMPTS)
    write_json(
        path,
        [{"prompt": prompt_text(chains, row), "answer": answer_text(chains, row)} for row in rows],
    )
