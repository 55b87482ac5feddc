"""How long a decode step takes on this machine, by batch size."""

from __future__ import annotations

import statistics
import time

from tools.trtllm_check.scenarios import Words
from tools.trtllm_check.stepper import Stepper
from tools.trtllm_check.verdict import Outcome, Verdict

BATCHES = (1, 8, 64)
WARM_UP_STEPS = 3


def timing_verdict(stepper: Stepper, words: Words, rows_max: int, steps: int) -> Verdict:
    """Medians in milliseconds; a note, because what is fast enough is for the deployer to say."""
    sizes = [size for size in BATCHES if size <= rows_max and _fits(stepper, size, steps)]
    told = [f"{size} rows {step_ms(stepper, words, size, steps):.2f} ms" for size in sizes]
    return Verdict(Outcome.NOTE, "decode step", f"{', '.join(told)} (median of {steps})")


def step_ms(stepper: Stepper, words: Words, rows: int, steps: int) -> float:
    """Median wall milliseconds of one token for each of `rows` sequences behind a block of prompt."""
    texts = [stepper.text(words.part(place, 1, 0)) for place in range(rows)]
    for text in texts:
        stepper.fed(text)
    took = []
    for _ in range(WARM_UP_STEPS + steps):
        for text in texts:
            text.tokens.append(words.ids[0])
        begun_at = time.perf_counter()
        stepper.fed(*texts)
        took.append(1e3 * (time.perf_counter() - begun_at))
    stepper.clear()
    return statistics.median(took[WARM_UP_STEPS:])


def _fits(stepper: Stepper, rows: int, steps: int) -> bool:
    tokens = stepper.info.block_size + WARM_UP_STEPS + steps
    blocks = rows * -(-tokens // stepper.info.block_size)
    return blocks <= stepper.info.num_blocks and tokens <= stepper.info.length_max
