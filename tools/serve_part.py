"""Serves one host's part of a deployment (`tools.make_repository --only`), and revives what dies in it.

    python -m tools.serve_part part/repository --http-port 8000

The doors answer once they hear every model, wherever it runs. Ctrl-C (or SIGTERM) ends it in order.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from python_backend.config import load_deployment
from python_backend.transport.directory import ENVIRONMENT_KEY
from router_backend.core.errors import ConfigError
from tools.serve import LOOK_S, Interrupts, run_folders, say
from tools.serving.admin import Admin
from tools.serving.supervisor import Supervisor
from tools.triton_server import Ports, ServerError, ServerOptions, TritonServer


def serve_part(options: argparse.Namespace, interrupts: Interrupts) -> int:
    """Exit status 0 after an orderly end."""
    load_deployment(options.repository / "deployment.yaml")
    models = tuple(sorted(path.parent.name for path in options.repository.glob("*/config.pbtxt")))
    with run_folders() as (folder, sockets):
        wanted = ServerOptions(
            repository=options.repository,
            run_dir=folder,
            ports=Ports(options.http_port, options.grpc_port, options.metrics_port),
            load_models=models,
            exit_timeout_s=options.drain_s,
            environment={ENVIRONMENT_KEY: str(sockets)},
        )
        server = TritonServer(wanted)
        try:
            server.start()
            interrupts.is_starting = False
            say(f"Ready: {', '.join(models)}; HTTP {server.http_url}, gRPC {server.grpc_address}")
            admin = Admin(server.http_url, server.metrics_url)
            return keep(server, Supervisor(server, admin, server.stubs(), say), interrupts)
        finally:
            server.stop()


def keep(server: TritonServer, supervisor: Supervisor, interrupts: Interrupts) -> int:
    """Until someone wants the end or Triton ends by itself; the exit status."""
    while not interrupts.wanted.wait(LOOK_S):
        if not server.is_alive:
            raise ServerError(f"tritonserver ended by itself\n{server.log_tail()}")
        supervisor.turn(time.monotonic())
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """0 after an orderly stop, 1 when it cannot serve."""
    options = _parser().parse_args(argv)
    interrupts = Interrupts()
    interrupts.install()
    try:
        return serve_part(options, interrupts)
    except (ServerError, ConfigError) as error:
        print(f"serve_part: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("Stopped before it was ready.")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.serve_part",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("repository", type=Path, help="the part, with its deployment.yaml")
    for name in ("http", "grpc", "metrics"):
        parser.add_argument(f"--{name}-port", type=int, default=0, help="0 takes a free one (0)")
    parser.add_argument("--drain-s", type=int, default=30, help="longest wait for open streams at the end")
    return parser


if __name__ == "__main__":
    sys.exit(main())
