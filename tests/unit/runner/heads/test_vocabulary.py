"""One number per vocabulary: equal for equal ids, whatever the file looks like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from python_backend.runner.heads.vocabulary import tokenizer_sha, tokens_by_id
from router_backend.core.errors import ConfigError


def folder(root: Path, name: str, vocab: Any, *added: tuple[int, str]) -> Path:
    path = root / name
    path.mkdir()
    tokens = [{"id": token_id, "content": content} for token_id, content in added]
    (path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": tokens}))
    return path


def test_layout_and_order_of_the_file_do_not_matter(tmp_path):
    a = folder(tmp_path, "a", {"x": 0, "y": 1}, (2, "<eos>"))
    b = folder(tmp_path, "b", {"y": 1, "x": 0, "<eos>": 2})
    c = folder(tmp_path, "c", [["x", -1.5], ["y", -2.0]], (2, "<eos>"))

    assert tokens_by_id(a) == tokens_by_id(b) == tokens_by_id(c) == {0: "x", 1: "y", 2: "<eos>"}
    assert tokenizer_sha(a) == tokenizer_sha(b) == tokenizer_sha(c)


def test_another_token_or_another_special_one_is_another_vocabulary(tmp_path):
    shas = {
        tokenizer_sha(folder(tmp_path, "a", {"x": 0, "y": 1}, (2, "<eos>"))),
        tokenizer_sha(folder(tmp_path, "b", {"x": 1, "y": 0}, (2, "<eos>"))),
        tokenizer_sha(folder(tmp_path, "c", {"x": 0, "y": 1}, (2, "<end>"))),
        tokenizer_sha(folder(tmp_path, "d", {"x": 0, "y": 1})),
    }

    assert len(shas) == 4


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"model": {}}', '{"model": {"vocab": 3}}', '{"model": {"vocab": [3]}}']
)
def test_a_file_without_a_vocabulary_is_refused_by_name(text, tmp_path):
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ConfigError, match=r"tokenizer.json: no usable model.vocab"):
        tokens_by_id(tmp_path)


def test_a_folder_without_the_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"tokenizer.json: No such file"):
        tokens_by_id(tmp_path)
