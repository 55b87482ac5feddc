"""The HTTP application: routes, keys, the size of bodies, and errors in one shape.

Composes; what an answer is belongs to `door` and `told`. The invariant: every error of every route has
OpenAI's shape.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from python_backend.client import AsyncTokenRouterClient, ClientError, Settings
from python_backend.openai.asked import ChatRequest, CompletionRequest
from python_backend.openai.door import Door, Gone
from python_backend.openai.faults import ApiError, ErrorBody, of_client, of_validation
from python_backend.openai.told import ModelCard, ModelList, Reply, model_list

PLAYGROUND = Path(__file__).with_name("playground.html")
BODY_BYTES_MAX = 8 * 1024 * 1024
GONE_STATUS = 499
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody} for status in (400, 401, 404, 413, 429, 500, 503, 504)
}
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "The answer, whole or as a stream of chunks"}
}


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How this server serves."""

    triton: str = "127.0.0.1:8001"
    """host:port of Triton's gRPC door."""
    name: str = "token_router"
    """The model's name for clients."""
    api_keys: tuple[str, ...] = ()
    """Any of them opens /v1; none: everybody may enter."""
    open_max: int = 512
    """Requests at once; the next is refused with 429."""
    client: Settings = field(default_factory=Settings)


def create_app(settings: ServerSettings) -> FastAPI:
    """The application; connects on start and closes what is open at its end."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncTokenRouterClient(settings.triton, settings.client) as client:
            app.state.door = Door(client, settings.name, settings.open_max)
            yield

    # docs pages would load scripts from elsewhere
    app = FastAPI(title="TokenRouter", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(BodyLimit, limit=BODY_BYTES_MAX)
    _add_error_handlers(app)
    _add_status_routes(app)
    _add_api_routes(app, key_check(settings.api_keys), int(time.time()))
    return app


def _add_api_routes(app: FastAPI, check: Callable[..., None], started_at: int) -> None:
    api = APIRouter(prefix="/v1", dependencies=[Depends(check)], responses=ERRORS)

    @api.post("/chat/completions", response_model=Reply, responses=STREAM)
    async def chat(body: ChatRequest, request: Request) -> Response:
        return await _door(request).answer(request, body)

    @api.post("/completions", response_model=Reply, responses=STREAM)
    async def completion(body: CompletionRequest, request: Request) -> Response:
        return await _door(request).answer(request, body)

    @api.get("/models", response_model=ModelList)
    async def models(request: Request) -> dict[str, Any]:
        door = _door(request)
        return model_list(door.name, await door.description(), started_at)

    @api.get("/models/{name:path}", response_model=ModelCard)
    async def model(name: str, request: Request) -> dict[str, Any]:
        door = _door(request)
        if name != door.name:
            raise ApiError(404, "model_not_found", f"model: {name!r} does not exist", "model")
        card: dict[str, Any] = model_list(name, await door.description(), started_at)["data"][0]
        return card

    app.include_router(api)


def _add_status_routes(app: FastAPI) -> None:
    page = PLAYGROUND.read_text(encoding="utf-8")

    @app.get("/health")
    async def health() -> dict[str, str]:
        """This process answers."""
        return {"status": "ok"}

    @app.get("/health/ready", responses={503: {"model": ErrorBody}})
    async def ready(request: Request) -> dict[str, str]:
        """The door and, of every model behind it, at least one replica are loaded."""
        if not await _door(request).client.is_ready():
            raise ApiError(503, "TR_UNREACHABLE", "the server, or one of its models, is not ready")
        return {"status": "ready"}

    @app.get("/", response_class=HTMLResponse)
    async def playground() -> str:
        """A page to try the server with."""
        return page


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def api(request: Request, error: ApiError) -> Response:
        return error.response()

    @app.exception_handler(ClientError)
    async def client(request: Request, error: ClientError) -> Response:
        return of_client(error).response()

    @app.exception_handler(RequestValidationError)
    async def validation(request: Request, error: RequestValidationError) -> Response:
        return of_validation(list(error.errors())).response()

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        found = ApiError(error.status_code, f"http_{error.status_code}", str(error.detail)).response()
        found.headers.update(error.headers or {})
        return found

    @app.exception_handler(Gone)
    async def gone(request: Request, error: Gone) -> Response:
        return Response(status_code=GONE_STATUS)

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, error: Exception) -> Response:
        return ApiError(500, "TR_INTERNAL", "an unforeseen error; the server's log has it").response()


def key_check(keys: Sequence[str]) -> Callable[..., None]:
    """A dependency that lets only requests with one of `keys` in, everybody if there is none."""

    def check(authorization: Annotated[str | None, Header()] = None) -> None:
        given = (authorization or "").removeprefix("Bearer ").encode()
        fits = [hmac.compare_digest(given, key.encode()) for key in keys]
        if keys and not any(fits):
            raise ApiError(401, "invalid_api_key", "send a valid API key as `Authorization: Bearer ...`")

    return check


class BodyLimit:
    """Refuses bodies that are too large before they are read into memory."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        read = 0

        async def bounded() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._limit:
                raise HTTPException(413, f"a body may have {self._limit} bytes")
            return message

        await self._app(scope, bounded, send)


def _door(request: Request) -> Door:
    door: Door = request.app.state.door
    return door
