"""A Qwen3 decoder with random weights over a cache of slots, and its steps on a stream of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

Tensor = torch.Tensor
LENGTH_MAX = 384
BUCKETS = (1, 2, 4, 8, 16, 32, 64)
"""Numbers of token rows that a graph is captured for; more than the last run eagerly."""


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int


SHAPES = {
    "qwen3": (
        Shape(28, 1024, 3072, 16, 8, 128, 151_936),
        Shape(64, 5120, 25_600, 64, 8, 128, 151_936),
    ),
    "tiny": (Shape(1, 32, 64, 2, 1, 16, 97), Shape(2, 64, 128, 4, 2, 16, 97)),
}


class Decoder:
    """A Qwen3 decoder over rows of (slot, token, position): one row per new token, of any request.

    A row writes its key and value into its slot's cache and attends to that slot up to its own position, so
    several rows of one slot are an extend and a row alone is a decode. Slot `slots` belongs to padding.
    """

    def __init__(self, shape: Shape, slots: int, device: torch.device) -> None:
        self.shape, self.device, self.padding = shape, device, slots
        is_gpu = device.type == "cuda"
        self._made = {"dtype": torch.bfloat16 if is_gpu else torch.float32, "device": device}
        generator = torch.Generator(device).manual_seed(shape.layers)
        wide, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim

        def weight(rows: int, columns: int) -> Tensor:
            return torch.randn(rows, columns, generator=generator, **self._made) * columns**-0.5

        self.embedding = weight(shape.vocab, shape.hidden)
        self.head = weight(shape.vocab, shape.hidden)
        self.layers = [
            (
                weight(wide + 2 * kv, shape.hidden),
                weight(shape.hidden, wide),
                weight(2 * shape.inner, shape.hidden),
                weight(shape.hidden, shape.inner),
            )
            for _ in range(shape.layers)
        ]
        cache = (shape.layers, 2, slots + 1, LENGTH_MAX, shape.kv_heads, shape.head_dim)
        self.cache = torch.zeros(cache, **self._made)
        self._places = torch.arange(LENGTH_MAX, device=device)
        self._rates = 1e6 ** -(torch.arange(0, shape.head_dim, 2, device=device) / shape.head_dim)

    @torch.inference_mode()
    def forward(self, rows: Tensor) -> Tensor:
        """int64[rows, 3] of slot, token, position -> int64[rows], the greedy next tokens."""
        slots, tokens, positions = rows.unbind(1)
        x = self.embedding[tokens]
        angles = positions[:, None] * self._rates
        turn = torch.cat([angles, angles], 1)[:, None]
        seen = (self._places <= positions[:, None])[:, None, None]
        for number, weights in enumerate(self.layers):
            x = self._layer(x, weights, self.cache[number], (slots, positions, turn, seen))
        return (_normed(x) @ self.head.T).argmax(1)

    def _layer(
        self, x: Tensor, weights: tuple[Tensor, ...], cache: Tensor, place: tuple[Tensor, ...]
    ) -> Tensor:
        shape, (slots, positions, turn, seen) = self.shape, place
        qkv, out, gate_up, down = weights
        split = [shape.heads, shape.kv_heads, shape.kv_heads]
        heads = (_normed(x) @ qkv.T).view(len(x), -1, shape.head_dim)
        query, key, value = heads.split(split, dim=1)
        query, key = _rotated(_normed(query), turn), _rotated(_normed(key), turn)
        cache[0, slots, positions], cache[1, slots, positions] = key, value
        keys, values = (part[slots].transpose(1, 2) for part in cache)
        read = functional.scaled_dot_product_attention(
            query[:, :, None], keys, values, attn_mask=seen, enable_gqa=True
        )
        x = x + read.reshape(len(x), -1) @ out.T
        gate, up = (_normed(x) @ gate_up.T).chunk(2, dim=1)
        return x + (functional.silu(gate) * up) @ down.T


def _normed(x: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], eps=1e-6)


def _rotated(x: Tensor, turn: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return (x * turn.cos() + torch.cat([-high, low], -1) * turn.sin()).to(x.dtype)


class Engine:
    """A decoder on its own stream, with CUDA graphs by bucket or without; one step at a time."""

    def __init__(self, decoder: Decoder, uses_graphs: bool) -> None:
        self.decoder, self.uses_graphs = decoder, uses_graphs
        self._is_gpu = decoder.device.type == "cuda"
        self._stream = torch.cuda.Stream(decoder.device) if self._is_gpu else None
        self._done = torch.cuda.Event() if self._is_gpu else None
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self._result: Tensor | None = None
        if uses_graphs and self._is_gpu:
            for bucket in BUCKETS:
                self._capture(bucket)

    def launch(self, rows: Sequence[tuple[int, int, int]]) -> None:
        """Start a step; returns before it has ended on a GPU."""
        bucket = next((size for size in BUCKETS if size >= len(rows)), len(rows))
        filled = [*rows, *[(self.decoder.padding, 0, 0)] * (bucket - len(rows))]
        with self._on_stream():
            given = torch.tensor(filled, dtype=torch.int64)
            if self._is_gpu:
                given = given.pin_memory().to(self.decoder.device, non_blocking=True)
            self._result = self._ran(bucket, given)
            if self._done is not None:
                self._result = self._result.to("cpu", non_blocking=True)
                self._done.record(self._stream)

    def is_done(self) -> bool:
        return self._done is None or self._done.query()

    def tokens(self) -> list[int]:
        """The next token of every row of the step that is done."""
        assert self._result is not None
        return self._result.tolist()

    def _ran(self, bucket: int, given: Tensor) -> Tensor:
        if bucket not in self._graphs:
            return self.decoder.forward(given)
        graph, rows, result = self._graphs[bucket]
        rows.copy_(given, non_blocking=True)
        graph.replay()
        return result

    def _capture(self, bucket: int) -> None:
        rows = torch.tensor([[self.decoder.padding, 0, 0]] * bucket, device=self.decoder.device)
        with self._on_stream():
            for _ in range(2):
                self.decoder.forward(rows)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream):
            result = self.decoder.forward(rows)
        self._graphs[bucket] = graph, rows, result

    def _on_stream(self) -> contextlib.AbstractContextManager[object]:
        return torch.cuda.stream(self._stream) if self._stream is not None else contextlib.nullcontext()
