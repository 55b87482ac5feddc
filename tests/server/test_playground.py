"""The playground in a real browser: two colours of tokens, the keyboard, both schemes, a silent console."""

from __future__ import annotations

import asyncio
import io
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.server.browser import Page, chromium, opened
from tests.server.clients import eventually
from tests.server.test_doors import DEMO
from tests.server.test_real_cancel import held
from tools.triton_server import TritonServer

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(chromium() is None, reason="no Chromium: apt-get install chromium-headless-shell"),
]

CTRL = 2
READY = "document.querySelectorAll('#legend span').length === 2"
ENDED = "/^(Ended|Cancelled)/.test(document.getElementById('note').textContent)"
COLOURS = (
    "['.m0', '.m1'].map((name) => document.querySelector('#answer ' + name))"
    ".map((mark) => getComputedStyle(mark).backgroundColor)"
)


def text(name: str) -> str:
    return f"document.getElementById('{name}').textContent"


def put(name: str, value: object) -> str:
    return f"document.getElementById('{name}').value = {json.dumps(value)}"


async def sent(page: Page) -> None:
    await page.value("document.getElementById('prompt').focus()")
    await page.press("Enter", CTRL)


def shown(url: str, folder: Path, act: Callable[[Page], Awaitable[None]]) -> None:
    async def visit() -> None:
        async with opened(url, folder) as page:
            await page.until(READY)
            await act(page)
            assert page.faults == []

    asyncio.run(visit())


def colours_of(picture: bytes) -> set[tuple[int, ...]]:
    found = Image.open(io.BytesIO(picture)).convert("RGB").getcolors(1 << 24) or []
    return {colour for count, colour in found if count > 100}


def test_each_token_has_the_colour_of_its_model_in_both_schemes(openai_url: str, tmp_path: Path) -> None:
    async def act(page: Page) -> None:
        await page.value(put("prompt", DEMO[0]["prompt"]))
        await sent(page)
        await page.until(ENDED)
        assert await page.value(text("answer")) == DEMO[0]["answer"]
        assert (await page.value(text("handoffs")), await page.value(text("share"))) == ("4", "15 %")
        assert await page.value("document.querySelectorAll('#lanes rect').length") == 13
        for scheme in ("light", "dark"):
            await page.prefer(scheme)
            wanted = {tuple(map(int, re.findall(r"\d+", colour))) for colour in await page.value(COLOURS)}
            picture = await page.screenshot()
            (tmp_path / f"{scheme}.png").write_bytes(picture)
            assert len(wanted) == 2
            assert wanted <= colours_of(picture)

    shown(openai_url, tmp_path / "profile", act)


def test_pointing_at_a_token_shows_its_author_and_the_alternatives(openai_url: str, tmp_path: Path) -> None:
    async def act(page: Page) -> None:
        await sent(page)
        await page.until(ENDED)
        await page.hover(".m1")
        await page.until("!document.getElementById('tip').hidden")
        tip = await page.value(text("tip"))
        assert tip.startswith("largeprobability ")
        assert "entropy ≥" in tip
        assert await page.value("document.querySelectorAll('#tip tr').length") == 5

    shown(openai_url, tmp_path, act)


def test_the_slider_overrides_the_cutoff_of_one_request(openai_url: str, tmp_path: Path) -> None:
    async def act(page: Page) -> None:
        await page.value(
            f"{put('cutoff', 1)}; document.getElementById('cutoff').dispatchEvent(new Event('input'))"
        )
        assert await page.value(text("cutoff-shown")) == "1.00"
        await page.value(put("mode", "chat"))
        await sent(page)
        await page.until(ENDED)
        assert await page.value(text("share")) == "0 %"

    shown(openai_url, tmp_path, act)


def test_escape_cancels_and_frees_the_models(server: TritonServer, openai_url: str, tmp_path: Path) -> None:
    async def act(page: Page) -> None:
        # a chat without an end token in sight: a hot answer of many tokens
        await page.value(f"{put('length', 4000)}; {put('temperature', 2)}")
        await page.value(
            "window.whole = request; request = () => {"
            " const asked = whole(); asked.body.ignore_eos = true; return asked; }"
        )
        await sent(page)
        await page.until("document.querySelectorAll('.token').length > 0")
        await page.press("Escape")
        await page.until(ENDED)
        assert (await page.value(text("note"))).startswith("Cancelled")

    shown(openai_url, tmp_path, act)
    assert eventually(lambda: held(server) == 0)


def test_a_refusal_is_said_with_the_field(openai_url: str, tmp_path: Path) -> None:
    async def act(page: Page) -> None:
        await page.value(put("prompt", ""))
        await sent(page)
        await page.until("document.getElementById('note').className === 'bad'")
        assert (await page.value(text("note"))).startswith("prompt: '' is an empty prompt")
        page.faults.clear()  # the browser itself reports every status of 400

    shown(openai_url, tmp_path, act)
