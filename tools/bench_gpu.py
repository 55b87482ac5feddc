"""Token-level routing on one GPU: Qwen3-0.6B and Qwen3-32B shapes, four modes, graphs on and off.

    python -m tools.bench_gpu [--json] [--concurrency 1 4 8 16] [--seconds 2]   # 80 GiB of memory, bfloat16
    python -m tools.bench_gpu --shapes tiny --device cpu --seconds 0.2          # does it run at all

Needs torch and this checkout. Random weights. After every token of the small model a request
goes to the large one with probability 0.35, which writes that token and gives it back (R2R's shape,
arXiv:2610.12242 Figure 10). Both models share the GPU, each on a stream of its own; one thread launches a
step when a model is idle and enough requests wait for it. `delayed` tries every threshold of the large model
up to the concurrency and tells the best. NOT YET RUN ON A GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import torch

from tools.gpu.decoder import SHAPES, Decoder, Engine
from tools.gpu.router import MODES, Router


@dataclass(frozen=True)
class Row:
    mode: str
    concurrency: int
    graphs: bool
    thresholds: tuple[int, int]
    throughput: float
    mean_batch: tuple[float, float]


def measured(engines: Sequence[Engine], n: int, mode: str, large: int, seconds: float) -> Row:
    router = Router(engines, n, mode, (1, large))
    router.run(seconds / 4)
    router.steps, router.rows = [0, 0], [0, 0]
    rate = router.run(seconds)
    batches = tuple(rows / max(1, steps) for rows, steps in zip(router.rows, router.steps, strict=True))
    return Row(mode, n, engines[0].uses_graphs, (1, large), rate, (batches[0], batches[1]))


def rows(options: argparse.Namespace, tell: Callable[[str], None]) -> Iterator[Row]:
    device = torch.device(options.device)
    decoders = [Decoder(shape, max(options.concurrency), device) for shape in SHAPES[options.shapes]]
    for uses_graphs in (True, False) if device.type == "cuda" else (False,):
        engines = [Engine(decoder, uses_graphs) for decoder in decoders]
        for n in options.concurrency:
            for mode in MODES:
                limits = range(1, n + 1) if mode == "delayed" else (1,)
                tried = [measured(engines, n, mode, large, options.seconds) for large in limits]
                best = max(tried, key=lambda row: row.throughput)
                tell(as_line(best))
                yield best


def as_line(row: Row) -> str:
    small, large = row.mean_batch
    graphs = "graphs" if row.graphs else "eager"
    return (
        f"{row.mode:<12}{row.concurrency:>4}  {graphs:<7}{row.thresholds!s:>8}"
        f"{row.throughput:>9.1f} tok/s  batch {small:.2f} {large:.2f}"
    )


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="bench_gpu.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = result.add_argument
    add("--json", action="store_true", help="print JSON at the end instead of the lines as they come")
    add("--device", default="cuda", choices=("cuda", "cpu"))
    add("--shapes", default="qwen3", choices=SHAPES)
    add("--concurrency", type=int, nargs="+", default=[1, 4, 8, 16], metavar="N")
    add("--seconds", type=float, default=2.0, help="of each measurement (default 2)")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    """0; 2 without the GPU that is asked for."""
    options = parser().parse_args(argv)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("bench_gpu: no CUDA device; --shapes tiny --device cpu shows that it runs", file=sys.stderr)
        return 2
    with torch.inference_mode():
        found = list(rows(options, lambda text: print(text, file=sys.stderr, flush=True)))
    device = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    document = {"device": device, "torch": torch.__version__, "rows": [*map(asdict, found)]}
    print(json.dumps(document) if options.json else "\n".join(map(as_line, found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
