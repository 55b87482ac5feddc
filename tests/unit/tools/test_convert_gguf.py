"""What the converter refuses before it loads anything, and what it makes transformers forget."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tools import convert_gguf


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF and more")
    return file


def refusal(capsys, source, target):
    assert convert_gguf.main([str(source), str(target)]) == 2
    return capsys.readouterr().err


def test_a_missing_file_is_named(capsys, tmp_path):
    assert "nothing.gguf: No such file" in refusal(capsys, tmp_path / "nothing.gguf", tmp_path / "out")


def test_a_file_of_another_kind_is_refused(capsys, tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"PK")

    assert "not a GGUF file" in refusal(capsys, tmp_path / "model.gguf", tmp_path / "out")


def test_what_is_there_already_is_not_overwritten(capsys, tmp_path, source):
    assert f"{tmp_path}: not empty" in refusal(capsys, source, tmp_path)


def test_missing_packages_are_named_with_their_cure(capsys, tmp_path, source, monkeypatch):
    monkeypatch.setattr(convert_gguf, "find_spec", lambda name: None)

    assert "pip install gguf accelerate" in refusal(capsys, source, tmp_path / "out")


def test_the_network_forgets_where_its_weights_came_from():
    network = SimpleNamespace(
        hf_quantizer=1,
        is_quantized=True,
        quantization_method=2,
        config=SimpleNamespace(quantization_config=3),
    )

    convert_gguf._forget_quantisation(network)

    assert vars(network.config) == {}
    assert (network.hf_quantizer, network.is_quantized, network.quantization_method) == (None, False, None)


def test_a_good_file_is_read_and_saved_through_transformers(capsys, tmp_path, source, monkeypatch):
    converted = []
    monkeypatch.setattr(convert_gguf, "convert", lambda *paths: converted.append(paths))

    assert convert_gguf.main([str(source), str(tmp_path / "out")]) == 0
    assert converted == [(source, tmp_path / "out")]
    assert "wrote" in capsys.readouterr().out
