"""One message of every kind that travels between processes, to start damage from."""

from __future__ import annotations

from router_backend.core.effects import Close, Emit, Reason, TokenLogprobs, Usage
from router_backend.core.replicas import ReplicaIndex
from router_backend.core.request import ModelIndex, PolicySpec, Request, RequestId, Sampling
from router_backend.handoff.codec import Message
from router_backend.handoff.message import (
    Abort,
    Admit,
    Admitted,
    Beat,
    Finished,
    Go,
    Handoff,
    Joined,
    Nack,
    Observation,
    Report,
    Thresholds,
)

SMALL, LARGE = ModelIndex(0), ModelIndex(1)
ID = RequestId("front-1f-1")
REQUEST = Request(
    ID,
    (1, 2, 3, 300, 70_000),
    max_tokens=8,
    sampling=Sampling(
        0.7,
        5,
        0.9,
        2**40,
        logit_bias=((1, -100.0), (9, 2.5)),
        bad_words=((1, 2), (300,)),
        min_tokens=2,
        logprobs=3,
    ),
    policy=PolicySpec("r_stitch", (("cutoff", 0.5), ("unit", "nats"))),
    stop_ids=frozenset({2, 99}),
)
MESSAGES: tuple[Message, ...] = (
    Handoff(ID, 0, SMALL, LARGE, 0, 0, REQUEST.prompt, (5, 5), 1, 3, REQUEST, {"k": 3, "text": "é"}),
    Handoff(ID, 0, LARGE, SMALL, 1, 5, (7, 8), (7, 7)),
    Admitted(ID, 0, SMALL),
    Joined(ID, 0, ReplicaIndex(2)),
    Finished(ID, 0, LARGE),
    Nack(ID, 0, LARGE, 3, 17),
    Admit(REQUEST),
    Abort(ID, 0),
    Beat("large", 12345678901, 1, 128, 4096, 65536, (1, 2)),
    Emit("front", ID, 0, 3, (7, 8), LARGE),
    Emit("front", ID, 0, 5, (9,), SMALL, (TokenLogprobs(-0.5, ((9, -0.5), (3, -2.25))),)),
    Close("front", ID, 0, Reason.STOP, 9, "why", Usage(2, 4)),
    Report(LARGE, 3, (0, 2), is_step_over=True),
    Go(SMALL),
    Observation(LARGE, 3, (2, 1), 17, ((1, 4, 2.5), (3, 2, 7.25))),
    Thresholds(SMALL, ((1, 1), (1, 2), (2, 2)), 5.0),
)
