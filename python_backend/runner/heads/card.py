"""`router.json`: what a router head is, which model it was trained on, and how its score is used.

Owns the schema and its checks; loads no weights and no torch. The comparison is part of an algorithm
(R12), so a card whose operator is not its algorithm's is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from router_backend.core.errors import ConfigError

CARD_FILE = "router.json"
WEIGHTS_FILE = "router.safetensors"

Kind = Literal["citer_mlp", "r2r_classifier", "defer_row"]
Operator = Literal["<", ">=", ">"]

OPERATORS: MappingProxyType[str, str] = MappingProxyType({"citer": "<", "r2r": ">=", "co_llm": ">"})
"""Score OPERATOR cutoff = the small model leaves."""


class HeadCard(BaseModel):
    """One artefact; see the field names of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_number: Literal[1] = Field(1, alias="schema")
    algorithm: Literal["citer", "r2r", "co_llm"]
    kind: Kind
    small: str = Field(min_length=1)
    """The model that the head reads, by the name of its publisher."""
    large: str = Field(min_length=1)
    tokenizer_sha: str = Field(pattern="^[0-9a-f]{64}$")
    """`vocabulary.tokenizer_sha` of the small model."""
    hidden_size: int = Field(ge=1)
    hidden_point: Literal["post_final_norm"] = "post_final_norm"
    topk: int = Field(0, ge=0)
    """How many logits the head reads."""
    logits: Literal["raw_sorted"] = "raw_sorted"
    """Before any temperature, penalty or mask; largest first."""
    cutoff: float = Field(allow_inf_nan=False)
    operator: Operator
    unit: Literal["probability"] = "probability"
    share_at_cutoff: float | None = Field(None, ge=0, le=1)
    """Share of tokens that the large model writes at this cutoff, where it was measured."""
    source: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> HeadCard:
        if self.operator != OPERATORS[self.algorithm]:
            raise ValueError(f"operator: {self.algorithm} compares with {OPERATORS[self.algorithm]}")
        if (self.topk > 0) != (self.kind == "r2r_classifier"):
            raise ValueError(f"topk: {self.topk} does not fit kind {self.kind}")
        return self

    def check_tokenizer(self, sha: str) -> None:
        """Raise ConfigError unless `sha` is the vocabulary that the head was trained on."""
        if sha != self.tokenizer_sha:
            raise ConfigError(
                f"router head for {self.small}: tokenizer_sha {self.tokenizer_sha[:12]} is not the served "
                f"model's {sha[:12]}: the head was trained on another vocabulary"
            )


def make_card(values: Mapping[str, Any], source: str) -> HeadCard:
    """ConfigError names `source`, the key and what is wrong with it."""
    try:
        return HeadCard.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{source}: {_explained(error)}") from error


def parse_card(text: str, source: str) -> HeadCard:
    """ConfigError names `source`, the key and what is wrong with it."""
    try:
        return HeadCard.model_validate_json(text)
    except ValidationError as error:
        raise ConfigError(f"{source}: {_explained(error)}") from error


def read_card(head_dir: Path) -> HeadCard:
    path = head_dir / CARD_FILE
    try:
        return parse_card(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}: cannot read the router head's card") from error


def write_card(head_dir: Path, card: HeadCard) -> None:
    text = card.model_dump_json(by_alias=True, indent=2)
    (head_dir / CARD_FILE).write_text(text + "\n", encoding="utf-8")


def _explained(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'file'}: {problem['msg']}"
        for problem in error.errors(include_url=False)
    )
