"""Ends with 0 when the server in this container is ready, with 1 and a reason when it is not.

Asks Triton's readiness, which tells the truth here because tools.serve takes a dead model out of the server.
Standard library only: it runs every few seconds.
"""

from __future__ import annotations

import http.client
import os
import sys
from collections.abc import Mapping

PATH = "/v2/health/ready"
WAIT_S = 3.0


def reason(environment: Mapping[str, str]) -> str:
    """Why the server is not ready; empty when it is."""
    port = int(environment.get("HTTP_PORT", "8000"))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    try:
        connection.request("GET", PATH)
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return f"no answer on port {port}: {error or type(error).__name__}"
    finally:
        connection.close()
    return "" if status == 200 else f"port {port}: {PATH} says {status}"


def main() -> int:
    why = reason(os.environ)
    if why:
        print(why, file=sys.stderr)
    return 1 if why else 0


if __name__ == "__main__":
    raise SystemExit(main())
