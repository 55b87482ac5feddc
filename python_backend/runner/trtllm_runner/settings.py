"""What a deployment decides about one TensorRT-LLM engine. Frozen; importing it loads no torch.

Contract-tested; unverified on hardware until tools.check_trtllm has run.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from python_backend.runner.resuming import Resume
from router_backend.core.request import ModelIndex

FIRST_MODEL = ModelIndex(0)


@dataclass(frozen=True, slots=True)
class TrtllmSettings:
    """`engine_dir` holds config.json and rank{r}.engine, or for the PyTorch flow the weights.

    `model_dir` holds tokenizer.json and the end tokens. `kv_tokens` is the size of the KV pool in tokens,
    `batch_max` and `batch_tokens_max` are the largest step that will be asked for. `length_max` None = the
    engine's own; `vocab_size` None = the tokenizer's. `model` keys the sampling draws.
    """

    engine_dir: Path
    model_dir: Path
    kv_tokens: int = 65536
    batch_max: int = 64
    batch_tokens_max: int = 512
    block_size: int = 32
    """PyTorch flow only; a built engine brings its own."""
    length_max: int | None = None
    vocab_size: int | None = None
    model: ModelIndex = FIRST_MODEL
    tensor_parallel: int = 1
    first_gpu: int = 0
    """Rank r is on GPU first_gpu + r."""
    resume: Resume = Resume.MID_BLOCK
    heads: tuple[tuple[str, Path], ...] = ()

    def tokens_max(self, block_size: int) -> int:
        """The largest step in tokens once resumes are laid out: an aligned row feeds up to a block more."""
        refed = self.batch_max * (block_size - 1) if self.resume is Resume.ALIGN else 0
        return self.batch_tokens_max + refed


def packed(settings: TrtllmSettings) -> str:
    """As text, for the command line of a rank."""
    return json.dumps(asdict(settings), default=str)


def unpacked(text: str) -> TrtllmSettings:
    own = json.loads(text)
    heads = tuple((name, Path(folder)) for name, folder in own.pop("heads"))
    engine_dir, model_dir, resume = Path(own.pop("engine_dir")), Path(own.pop("model_dir")), own.pop("resume")
    return replace(TrtllmSettings(engine_dir, model_dir, **own), heads=heads, resume=Resume(resume))
