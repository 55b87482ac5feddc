"""What travels between a subserver and its ranks, as bytes.

A *feed* is what every rank must know of a step: tokens, positions and block tables, one int32 array
(some kilobytes). A *plan* is a feed and what only rank 0 needs, because only rank 0 samples. No pickle.
The invariant: equal feeds make equal batches, so all ranks run the same steps on the same blocks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from python_backend.runner.base import RunnerInfo
from router_backend.core.request import RequestId, Sampling
from router_backend.scheduler.batch import BatchPlan, DraftReading, LaunchReason, Needs, Row, StepOutput

Int32s = npt.NDArray[np.int32]
WORD_BYTES = 4
ROW_WORDS = 5
"""Of each row: whether it samples, its start, the prompt's length, the number of tokens and of blocks."""
PLAIN = Sampling()
SCORES, DRAFT = "scores.", "draft."
"""What the nested columns of an output are called."""


def pack_feed(plan: BatchPlan) -> bytes:
    """[step, rows], then `ROW_WORDS` numbers per row, then all tokens, then all blocks."""
    table = [
        [row.is_sampling, row.start, row.prompt_len, len(row.token_ids), len(row.blocks)] for row in plan.rows
    ]
    parts = [[plan.step, len(plan.rows)], *table]
    parts += [row.token_ids for row in plan.rows]
    parts += [row.blocks for row in plan.rows]
    return np.fromiter((word for part in parts for word in part), np.int32).tobytes()


def unpack_feed(frame: bytes) -> BatchPlan:
    """A plan whose rows say what to feed; how to sample is rank 0's business."""
    words = np.frombuffer(frame, np.int32)
    step, count = (int(word) for word in words[:2])
    table = words[2 : 2 + count * ROW_WORDS].reshape(count, ROW_WORDS)
    rest = words[2 + count * ROW_WORDS :]
    tokens, blocks = np.split(rest, [int(table[:, 3].sum())])
    rows = tuple(
        Row(RequestId(f"row {index}"), fed, int(line[1]), held, bool(line[0]), PLAIN, 0, (), int(line[2]))
        for index, (line, fed, held) in enumerate(
            zip(table, _cut(tokens, table[:, 3]), _cut(blocks, table[:, 4]), strict=True)
        )
    )
    return BatchPlan(step, rows, Needs(), LaunchReason.ALONE)


def _cut(words: Int32s, lengths: Int32s) -> list[list[int]]:
    return [part.tolist() for part in np.split(words, np.cumsum(lengths)[:-1])]


def pack_plan(plan: BatchPlan) -> bytes:
    """Everything; equal samplings are written once, the written text only where a row's choice reads it."""
    samplings = list(dict.fromkeys(row.sampling for row in plan.rows))
    header = {
        "needs": plan.needs._asdict(),
        "reason": plan.reason.value,
        "samplings": [_changed(sampling) for sampling in samplings],
        "rows": [_told(row, samplings.index(row.sampling)) for row in plan.rows],
    }
    return _joined(header, pack_feed(plan))


def _told(row: Row, sampling: int) -> list[Any]:
    history = list(row.history) if row.sampling.is_constrained else []
    stops = sorted(row.stop_ids) if row.sampling.min_tokens else []
    return [row.request_id, sampling, row.attempt, row.draft, history, stops]


def _changed(sampling: Sampling) -> dict[str, Any]:
    own, plain = asdict(sampling), asdict(PLAIN)
    return {name: value for name, value in own.items() if value != plain[name]}


def unpack_plan(frame: bytes) -> tuple[BatchPlan, bytes]:
    """The plan, and the feed inside it as it goes to the other ranks."""
    header, feed = _split(frame)
    samplings = [
        Sampling(**{name: _frozen(value) for name, value in own.items()}) for own in header["samplings"]
    ]
    fed = unpack_feed(feed)
    rows = tuple(
        row._replace(
            request_id=RequestId(name),
            sampling=samplings[sampling],
            attempt=attempt,
            draft=draft,
            history=history,
            stop_ids=frozenset(stops),
        )
        for row, (name, sampling, attempt, draft, history, stops) in zip(
            fed.rows, header["rows"], strict=True
        )
    )
    needs = Needs(**{name: _frozen(value) for name, value in header["needs"].items()})
    return BatchPlan(fed.step, rows, needs, LaunchReason(header["reason"])), feed


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def pack_output(output: StepOutput) -> bytes:
    own = {field.name: getattr(output, field.name) for field in fields(output)}
    nested: dict[str, Mapping[str, Any]] = {SCORES: own.pop("scores"), DRAFT: _reading(own.pop("draft"))}
    columns = [
        *own.items(),
        *((prefix + name, column) for prefix, part in nested.items() for name, column in part.items()),
    ]
    arrays = [(name, np.ascontiguousarray(column)) for name, column in columns if column is not None]
    header = [[name, array.dtype.str, array.shape] for name, array in arrays]
    return _joined(header, b"".join(array.tobytes() for _, array in arrays))


def unpack_output(frame: bytes) -> StepOutput:
    header, body = _split(frame)
    columns, begin = dict[str, Any](), 0
    for name, dtype, shape in header:
        count = int(np.prod(shape))
        array = np.frombuffer(body, dtype, count, begin).reshape(shape).copy()
        columns[name] = array
        begin += array.nbytes
    scores, reading = (_taken(columns, prefix) for prefix in (SCORES, DRAFT))
    return StepOutput(scores=scores, draft=DraftReading(**reading) if reading else None, **columns)


def _reading(reading: DraftReading | None) -> dict[str, Any]:
    return {} if reading is None else {field.name: getattr(reading, field.name) for field in fields(reading)}


def _taken(columns: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The columns whose names begin like that, taken out, without the prefix."""
    names = [name for name in columns if name.startswith(prefix)]
    return {name.removeprefix(prefix): columns.pop(name) for name in names}


def pack_info(info: RunnerInfo) -> bytes:
    return json.dumps({**asdict(info), "eos_ids": sorted(info.eos_ids)}).encode()


def unpack_info(frame: bytes) -> RunnerInfo:
    own = json.loads(frame)
    return RunnerInfo(**{**own, "eos_ids": frozenset(own["eos_ids"])})


def _joined(header: Any, body: bytes) -> bytes:
    """The header's length, the header, then the body on a whole word."""
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + body


def _split(frame: bytes) -> tuple[Any, bytes]:
    size = int.from_bytes(frame[:8], "little")
    return json.loads(frame[8 : 8 + size]), frame[8 + size :]
