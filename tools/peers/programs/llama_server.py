"""llama.cpp's HTTP server over a Qwen3 Hugging Face directory, which is written as GGUF first (float32).

    python llama_server.py MODEL_DIR GGUF PORT SLOTS TOKENS_PER_SLOT THREADS

Run by the interpreter that has `xllamacpp`, `gguf` and `safetensors`. Ends with the process that started it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
AROUND = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
LOOK_AGAIN_S = 1.0


def gguf_name(name: str) -> str:
    """llama.cpp's name of a Hugging Face tensor of Qwen3; KeyError for one that it does not have."""
    stem, kind = name.rsplit(".", 1)
    if stem in AROUND:
        return f"{AROUND[stem]}.{kind}"
    number, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{number}.{LAYER[part]}.{kind}"


def write_gguf(folder: Path, path: Path) -> None:
    """Weights, shape and vocabulary of the directory `folder`; refuses what is not Qwen3."""
    import gguf
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "qwen3":
        raise SystemExit(f"{folder}: model_type {config['model_type']!r}: only qwen3 is written here")
    writer = gguf.GGUFWriter(str(path), "qwen3")
    _add_shape(writer, config)
    _add_vocabulary(writer, gguf, json.loads((folder / "tokenizer.json").read_text()), config)
    for name, tensor in load_file(folder / "model.safetensors").items():
        writer.add_tensor(gguf_name(name), tensor.astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: Any, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])


def _add_vocabulary(writer: Any, gguf: Any, tokenizer: dict[str, Any], config: dict[str, Any]) -> None:
    """Ids are all that is ever asked for; the pieces only have to be there."""
    words = {index: word for word, index in tokenizer["model"]["vocab"].items()}
    words.update({one["id"]: one["content"] for one in tokenizer.get("added_tokens", [])})
    pieces = [words.get(index, f"<unused{index}>") for index in range(config["vocab_size"])]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(pieces)
    writer.add_token_types([int(gguf.TokenType.NORMAL)] * len(pieces))
    writer.add_token_merges([f"{pieces[-2]} {pieces[-1]}"])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])


def serve(path: Path, port: int, slots: int, slot_tokens: int, threads: int) -> None:
    """Until the parent is gone."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = slots
    params.n_ctx = slots * slot_tokens
    params.kv_unified = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(LOOK_AGAIN_S)


def main(arguments: list[str]) -> None:
    folder, path, *numbers = arguments
    write_gguf(Path(folder), Path(path))
    port, slots, slot_tokens, threads = map(int, numbers)
    serve(Path(path), port, slots, slot_tokens, threads)


if __name__ == "__main__":
    main(sys.argv[1:])
