"""What the GPU script computes is checked on a CPU: caches, routing and the four modes."""

from __future__ import annotations

import json

import pytest
import torch

from tools import bench_gpu
from tools.gpu.decoder import SHAPES, Decoder, Engine
from tools.gpu.router import MODES, PROMPT, ROUTE_PROBABILITY, Router

CPU = torch.device("cpu")


def engines(slots: int) -> list[Engine]:
    return [Engine(Decoder(shape, slots, CPU), uses_graphs=False) for shape in SHAPES["tiny"]]


def next_token(decoder: Decoder, text: list[int]) -> int:
    """By one forward of the whole text on an empty slot."""
    rows = torch.tensor([(decoder.padding - 1, token, at) for at, token in enumerate(text)])
    return int(decoder.forward(rows)[-1])


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_writes_what_the_models_say_about_the_whole_text(mode: str) -> None:
    pair = engines(4)
    router = Router(pair, 3, mode, (1, 2))
    requests = list(router.waiting[0])
    for _ in range(200):
        router.turn()
    fresh = [Decoder(shape, 4, CPU) for shape in SHAPES["tiny"]]

    for request in requests:
        written = request.text[PROMPT:]
        assert len(written) > 5
        for at in range(min(8, len(written))):
            text = request.text[: PROMPT + at]
            assert written[at] in {next_token(decoder, text) for decoder in fresh}


def test_both_models_write_and_the_large_one_writes_its_share() -> None:
    router = Router(engines(8), 8, "eager_async", (1, 1))
    for _ in range(600):
        router.turn()
    small, large = router.committed

    assert large / (small + large) == pytest.approx(ROUTE_PROBABILITY, abs=0.08)


def test_a_threshold_makes_larger_batches() -> None:
    means = []
    for large in (1, 4):
        router = Router(engines(6), 6, "delayed", (1, large))
        for _ in range(400):
            router.turn()
        means.append(router.rows[1] / router.steps[1])

    assert means[1] >= 4.0 > means[0]


def test_the_command_prints_a_row_for_every_mode(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--device", "cpu", "--shapes", "tiny", "--concurrency", "2", "--seconds", "0.02", "--json"]

    assert bench_gpu.main(options) == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["mode"] for row in document["rows"]] == list(MODES)
    assert document["device"] == "CPU"


def test_without_a_gpu_it_says_what_to_run_instead(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    assert bench_gpu.main([]) == 2
    assert "--shapes tiny --device cpu" in capsys.readouterr().err
