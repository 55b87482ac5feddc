"""What an answer must be: one request, one token after the other, no scheduler, no messages.

Written from the definition of each policy (shared notes on algorithms), not from its code. The only
thing it has in common with the simulation is the scripted model.
"""

from __future__ import annotations

import math

from router_backend.core.effects import TokenLogprobs
from router_backend.core.request import Request
from router_backend.simulation.script import Script, context_of, extended


def expected_answer(request: Request, script: Script, models: int) -> tuple[list[int], list[int]]:
    """Token ids of the answer and the model that writes each."""
    tokens = list(request.prompt)
    writers: list[int] = []
    here = 0
    while len(writers) < request.max_tokens:
        seed = request.sampling.seed
        here = writer_of(request, script, here, len(tokens), models)
        token = script.token(seed, context_of(tokens), here)
        tokens.append(token)
        writers.append(here)
        here = after(request, script, here, len(tokens) - 1)
        if token in request.stop_ids:
            break
    return tokens[request.prompt_len :], writers


def expected_logprobs(
    request: Request, script: Script, token_ids: list[int], writers: list[int]
) -> list[TokenLogprobs | None]:
    """What the client is told of each token of the answer: its writer's figures, nobody else's."""
    count = request.sampling.logprobs
    told: list[TokenLogprobs | None] = []
    context = context_of(request.prompt)
    for token, writer in zip(token_ids, writers, strict=False):
        own = script.logprob(context, writer)
        top = tuple(((token + rank) % script.vocab_size, own - rank) for rank in range(count or 0))
        told.append(None if count is None else TokenLogprobs(own, top))
        context = extended(context, token)
    return told


def writer_of(request: Request, script: Script, here: int, position: int, models: int) -> int:
    """Which model's token stays at `position` when control is at model `here`."""
    options = request.policy.options()
    if request.policy.name == "r_stitch":
        return 1 if here == 0 and is_uncertain(request, script, here, position) else here
    period = {"never": math.inf, "always": 1, "every": options.get("k", 2)}[str(options.get("mode", "never"))]
    number = position - request.prompt_len + 1
    target = int(str(options.get("to", f"model{models - 1}")).removeprefix("model"))
    entry = int(str(options.get("entry", "model0")).removeprefix("model"))
    return target if number % float(period) == 0 else entry


def after(request: Request, script: Script, writer: int, position: int) -> int:
    """Where control is once `writer` has written `position`: only R-Stitch's large model may keep it."""
    is_staying = request.policy.name == "r_stitch" and writer == 1
    return 1 if is_staying and is_uncertain(request, script, 1, position) else 0


def is_uncertain(request: Request, script: Script, model: int, position: int) -> bool:
    cutoff = float(request.policy.options()["cutoff"])
    entropy = script.entropy(request.sampling.seed, position, model)
    return entropy > cutoff * math.log(script.vocab_size)
