"""Every routing algorithm as clients ask for it, beside its sequential definition; and who writes.

Cutoffs lie in the middle of what these models' signals are, so that every branch is taken often.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from python_backend.config import Deployment
from tests import oracle, oracle_holding
from tests.contract.readings import ModelWriter
from tests.oracle import Rolling, Rule
from tests.published_routers import HIDDEN, VOCAB
from tests.tiny_models import TinyModel, frozen, tiny_model_dir

NAMES = ("small", "large", "huge")
SHAPE = {
    "hidden_size": HIDDEN,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}
ENDS = frozenset({1, 5, 7, 8})
SMALL = TinyModel("qwen3", 21, VOCAB, VOCAB + 3, fields=frozen(eos_token_id=[1, 5], **SHAPE))
LARGE = TinyModel("qwen3", 21, VOCAB, VOCAB + 3, fields=frozen(eos_token_id=[7, 8], rope_theta=10.0, **SHAPE))
"""The small one's weights, turned otherwise: they agree on three tokens of four, as a real pair does."""
OTHERS = (
    TinyModel("llama", 52, VOCAB, VOCAB + 24, fields=frozen(eos_token_id=[7, 8], **SHAPE)),
    TinyModel("qwen2", 53, VOCAB, VOCAB, fields=frozen(eos_token_id=[8], **SHAPE)),
)
"""Of a deployment of three: another family each, and other padding."""
HEAD_CUTOFFS = {"citer": 0.15, "r2r": 0.42, "co_llm": 0.65}
BUCKETS = (1.5, -2.0, 0.5, -1.0, 2.5)


class Case(NamedTuple):
    policy: str
    params: dict[str, Any]
    rule: Rule


PAIR: dict[str, Case] = {
    "r_stitch": Case("r_stitch", {"cutoff": 0.76}, oracle.r_stitch(0.76, VOCAB)),
    "citer": Case("citer", {"cutoff": HEAD_CUTOFFS["citer"]}, oracle.citer(HEAD_CUTOFFS["citer"])),
    "r2r": Case("r2r", {"cutoff": HEAD_CUTOFFS["r2r"]}, oracle.r2r(HEAD_CUTOFFS["r2r"])),
    "co_llm": Case("co_llm", {"cutoff": HEAD_CUTOFFS["co_llm"]}, oracle.co_llm(HEAD_CUTOFFS["co_llm"])),
    "mixture": Case("mixture", {"small": 0.75, "large": 0.25}, oracle.mixture(0.75, 0.25)),
    "max_prob": Case("max_prob", {"cutoff": 0.2}, oracle.max_prob(0.2)),
    "entropy": Case("entropy", {"cutoff": 2.8}, oracle.entropy(2.8)),
    "random": Case("random", {"p": 0.35}, oracle.random(0.35)),
    "rolling_entropy": Case(
        "rolling_entropy",
        {"cutoff": 2.8, "return_cutoff": 2.6, "window": 2, "max_stay": 4},
        Rolling(2.8, 2.6, 2, max_stay=4),
    ),
    "query_level": Case(
        "query_level", {"weights": ",".join(map(str, BUCKETS))}, oracle.query_level(BUCKETS)
    ),
    "cascade": Case("cascade", {"cutoff": 0.22}, oracle_holding.cascade(0.22)),
    "bild": Case(
        "bild", {"cutoff": 0.17, "rollback_cutoff": 1.9}, oracle_holding.bild(0.17, 1.9, 10)
    ),
    "speculative": Case("speculative", {}, oracle_holding.speculative(4)),
    "every third": Case("fixed", {"mode": "every", "k": 3}, oracle.every(3)),
    "small alone": Case("fixed", {"mode": "never"}, oracle.alone(0)),
    "large to the end": Case("r_stitch", {"cutoff": -1.0}, oracle.r_stitch(-1.0, VOCAB)),
}
THREE: dict[str, Case] = {
    "mixture": Case("mixture", dict(zip(NAMES, (0.5, 0.3, 0.2), strict=True)), oracle.mixture(0.5, 0.3, 0.2)),
    "one of them": Case("mixture", {"large": 1.0}, oracle.alone(1)),
    "to a named one": Case("entropy", {"cutoff": 2.8, "large": "large"}, oracle.entropy(2.8)),
    "cascade": Case("cascade", {"cutoff": 0.22}, oracle_holding.cascade(0.22)),
}


def writers(models: int) -> list[ModelWriter]:
    """Whom the definitions ask."""
    small = ModelWriter(0, SMALL, VOCAB, HEAD_CUTOFFS)
    sources = (LARGE,) if models == 2 else OTHERS
    return [small, *(ModelWriter(model, source, VOCAB) for model, source in enumerate(sources, 1))]


def deployment(models: int, heads: dict[str, str], **settings: Any) -> Deployment:
    """Pools so small that parked caches are evicted."""
    sources = (SMALL, LARGE) if models == 2 else (SMALL, *OTHERS)
    own = [
        {
            "name": name,
            "model_dir": str(tiny_model_dir(source)),
            "dtype": "float64",
            "kv_tokens": 176,
            "block_size": 4,
            "batch_tokens_max": 24,
            "batch_max": 8,
            "threshold": threshold,
            "heads": heads if name == NAMES[0] else {},
        }
        for name, source, threshold in zip(NAMES, sources, (3, 2, 1)[:models], strict=False)
    ]
    front = {"heartbeat_ms": 50, "peer_timeout_s": 20}
    return Deployment.model_validate({"models": own, "deadline_ms": 5, "front": front, **settings})
