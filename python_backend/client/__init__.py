"""A Python client of the `token_router` door: streams, timeouts, cancellation, the author of every token.

Stands on tritonclient's messages and nothing of the server but the table of its tensors; imports no engine.
"""

from python_backend.client.async_client import AsyncStream, AsyncTokenRouterClient
from python_backend.client.errors import ClientError, RequestRefused, TimedOut, Unavailable
from python_backend.client.options import Options, Prompt
from python_backend.client.results import Answer, Chunk, Description, Ending, Likely, TokenReport
from python_backend.client.settings import Settings
from python_backend.client.sync_client import Stream, TokenRouterClient

__all__ = [
    "Answer",
    "AsyncStream",
    "AsyncTokenRouterClient",
    "Chunk",
    "ClientError",
    "Description",
    "Ending",
    "Likely",
    "Options",
    "Prompt",
    "RequestRefused",
    "Settings",
    "Stream",
    "TimedOut",
    "TokenReport",
    "TokenRouterClient",
    "Unavailable",
]
