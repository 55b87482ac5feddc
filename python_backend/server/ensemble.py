"""The ensemble's outer steps: one request in, one response out, no state between them.

Never lets an exception leave `execute`: its traceback would be the client's error text.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from python_backend.server.contracts import Contract
from python_backend.server.outputs import Arrays
from python_backend.server.response_stream import FAULTS, INTERNAL
from python_backend.server.values import Values, values_of
from python_backend.server.wire import envelope, error_response, input_arrays, response, wanted_outputs
from router_backend.core.errors import RouterError

LOG = logging.getLogger(__name__)


def read_values(contract: Contract, request: Any) -> Values:
    """Typed inputs of a step; RequestError names an input or request parameter that cannot be served."""
    parameters = json.loads(envelope(request).parameters_json or "{}")
    return values_of(contract, input_arrays(request), parameters)


def is_cancelled(request: Any) -> bool:
    return bool(request.is_cancelled())


def answer(request: Any, act: Callable[[Any], Arrays]) -> Any:
    """The response to one request of a step that is not decoupled; what `act` raises becomes its error."""
    try:
        return response(act(request), wanted_outputs(request))
    except RouterError as error:
        return error_response(error.code, str(error))
    except FAULTS:
        LOG.exception("a step failed")
        return error_response(INTERNAL.code, str(INTERNAL))
