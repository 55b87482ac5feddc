"""A headless Chromium, driven over its DevTools protocol: what the tests of a page need and no more.

`.ci/run` installs Debian's chromium-headless-shell; where there is no Chromium, the tests that need one are
skipped by name.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

NAMES = ("chromium-headless-shell", "chromium", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--no-proxy-server", "--remote-debugging-port=0", "--force-device-scale-factor=1"),
)
WAIT_S = 60.0
FAULTS = ("Runtime.exceptionThrown", "Log.entryAdded")


def chromium() -> str | None:
    """The program, None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class Page:
    """One page; `faults` is everything that went to its console as an error."""

    socket: Any
    session: str = ""
    faults: list[str] = field(default_factory=list)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self.numbers)
        await self.socket.send_json(
            {
                "id": number,
                "method": method,
                "params": params,
                **({"sessionId": self.session} if self.session else {}),
            }
        )
        while True:
            message = json.loads((await self.socket.receive(timeout=WAIT_S)).data)
            self._note(message)
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        is_error = params.get("type") == "error" or params.get("entry", {}).get("level") == "error"
        if message.get("method") == "Runtime.exceptionThrown" or is_error:
            self.faults.append(json.dumps(params))

    async def value(self, expression: str) -> Any:
        """What the JavaScript expression is, promises awaited."""
        found = await self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str) -> None:
        """Return once it is true; the page itself looks again and again."""
        look = f"const look = () => ({expression}) ? done() : setTimeout(look, 20); look();"
        await asyncio.wait_for(self.value(f"new Promise((done) => {{ {look} }})"), WAIT_S)

    async def press(self, key: str, modifiers: int = 0) -> None:
        """A key as the keyboard sends it; 2 is Ctrl."""
        for kind in ("rawKeyDown", "keyUp"):
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, modifiers=modifiers)

    async def hover(self, selector: str) -> None:
        box = await self.value(
            f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        await self.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])

    async def prefer(self, scheme: str) -> None:
        """`light` or `dark`."""
        await self.send(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
        )

    async def screenshot(self) -> bytes:
        """PNG of the visible part."""
        return base64.b64decode((await self.send("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def opened(url: str, folder: Path, width: int = 1180, height: int = 900) -> AsyncIterator[Page]:
    """The page at `url` in a browser that keeps its things in `folder` and is gone afterwards."""
    program = chromium()
    assert program is not None
    process = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={folder}", f"--window-size={width},{height}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(_address(process), max_msg_size=0) as socket,
        ):
            page = Page(socket)
            target = (await page.send("Target.createTarget", url="about:blank", width=width, height=height))[
                "targetId"
            ]
            page.session = (await page.send("Target.attachToTarget", targetId=target, flatten=True))[
                "sessionId"
            ]
            for domain in ("Page", "Runtime", "Log"):
                await page.send(f"{domain}.enable")
            await page.send("Page.navigate", url=url)
            await page.until("document.readyState === 'complete'")
            yield page
            page.session = ""
            await page.send("Browser.close")
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_S)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if "DevTools listening on " in line:
            return line.split("DevTools listening on ")[1].strip()
    raise AssertionError("the browser did not start")
