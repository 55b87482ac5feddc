"""From text to tokens, over two models and a front, back to text: nothing is lost at any cut (F01)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from python_backend.loops.base import Ask
from python_backend.text.tokenizer import ModelTokenizer
from router_backend.core.request import ModelIndex
from tests.unit.loops.front_bench import Bench, Port, close, emit
from tests.unit.text.tokenizers_made_here import byte_fallback, byte_level

CODECS = {"level": ModelTokenizer(byte_level(), {}), "fallback": ModelTokenizer(byte_fallback(), {})}
TEXTS = st.text(alphabet="ab é日本語😀👩\u200d👧\ufffd", min_size=1, max_size=12)


def answered(kind: str, ids: list[int], data: st.DataObject, **ask: Any) -> Port:
    """The two models write `ids` in runs, and the runs arrive in any order."""
    bench = Bench(CODECS[kind], flush_ms=20, flush_tokens=3)
    bench.beat(vocab_size=CODECS[kind].vocab_size, length_max=400, capacity_tokens=400)
    port = Port()
    request_id = bench.loop.submit(Ask(text="a", max_tokens=len(ids), **ask), port)
    bench.turn()
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(ids) - 1)), max_size=6)))
    runs = list(zip([0, *cuts], [*cuts, len(ids)], strict=True))
    for index in data.draw(st.permutations(range(len(runs)))):
        begin, end = runs[index]
        model = ModelIndex(index % 2)
        bench.send("large" if model else "small", emit(request_id, begin, *ids[begin:end], model=model))
        bench.turn(data.draw(st.sampled_from([0.0, 0.03])))
    bench.send("small", close(request_id, len(ids)))
    bench.turn()
    return port


@pytest.mark.parametrize("kind", ["level", "fallback"])
@given(text=TEXTS, data=st.data())
@settings(deadline=None, max_examples=60)
def test_streamed_text_is_the_text_whatever_writes_it(kind: str, text: str, data: st.DataObject) -> None:
    ids = list(CODECS[kind].encode(text))
    streamed = answered(kind, ids, data, is_streaming=True)
    whole = answered(kind, ids, data)
    assert (streamed.text, whole.text, len(whole.pieces)) == (text, text, 1)
    assert streamed.finish == whole.finish


@pytest.mark.parametrize("kind", ["level", "fallback"])
@given(text=TEXTS, stop=TEXTS, data=st.data())
@settings(deadline=None, max_examples=60)
def test_a_stop_string_of_any_characters_never_leaks(
    kind: str, text: str, stop: str, data: st.DataObject
) -> None:
    ids = list(CODECS[kind].encode(text + stop + text))
    port = answered(kind, ids, data, is_streaming=True, stop=(stop,))
    assert port.text == (text + stop).partition(stop)[0]
    assert port.finish.stop_text == stop


@pytest.mark.parametrize("kind", ["level", "fallback"])
@given(data=st.data())
@settings(deadline=None, max_examples=60)
def test_any_tokens_give_one_text_streamed_or_not(kind: str, data: st.DataObject) -> None:
    size = CODECS[kind].vocab_size
    ids = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=16))
    streamed, whole = answered(kind, ids, data, is_streaming=True), answered(kind, ids, data)
    assert streamed.text == whole.text
