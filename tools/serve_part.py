"""Serves some models of a deployment whose others run elsewhere, and revives what dies of its own.

    python -m tools.serve_part part/repository --http-port 8000        a part made by make_repository --only
    python -m tools.serve_part model_repository --only small --settings network.yaml

The doors answer once they hear every model, wherever it runs; nobody has to start first. Ctrl-C (or SIGTERM)
ends it in order.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from python_backend.config import load_deployment
from python_backend.transport.directory import ENVIRONMENT_KEY
from router_backend.core.errors import ConfigError
from tools.serve import Watcher, add_common_options, run_folders, say, watch
from tools.serving.admin import Admin
from tools.serving.ending import end_now
from tools.serving.exposure import Exposure, exposure
from tools.serving.interrupts import Interrupts, until_ended
from tools.serving.openai_keeper import OpenAIKeeper
from tools.serving.openai_process import OpenAIOptions, OpenAIProcess, must_be_free
from tools.serving.placement import DEPLOYMENT, Wishes, place, read_settings
from tools.serving.supervisor import Supervisor
from tools.triton_server import Ports, ServerOptions, TritonServer

DOOR = "token_router"
"""What the OpenAI server asks."""


def serve_part(options: argparse.Namespace, interrupts: Interrupts) -> int:
    """Exit status 0 after an orderly end; ServerError or ConfigError when it cannot serve."""
    with run_folders() as (folder, sockets):
        repository, models = placed(options, folder)
        shown = exposure(options.host)
        server = TritonServer(
            ServerOptions(
                repository=repository,
                run_dir=folder,
                ports=Ports(options.http_port, options.grpc_port, options.metrics_port),
                host=options.host,
                load_models=models,
                awaited_fronts=(),
                exit_timeout_s=options.drain_s,
                ready_s_max=options.ready_s,
                arguments=shown.arguments,
                environment={ENVIRONMENT_KEY: str(sockets)},
            )
        )
        openai = _openai(options, models, folder)
        interrupts.hurry = lambda: end_now(server, openai)
        try:
            return _started(server, openai, shown, interrupts)
        finally:
            if openai is not None:
                openai.stop()
            server.stop()


def placed(options: argparse.Namespace, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The repository to serve, and the models to load from it."""
    if not (options.only or options.settings):
        load_deployment(options.repository / DEPLOYMENT)
        return options.repository, _configured(options.repository)
    wishes = Wishes(settings=read_settings(options.settings))
    place(options.repository, folder / "repository", wishes)
    known = _configured(folder / "repository")
    unknown = [name for name in options.only or () if name not in known]
    if unknown:
        raise ConfigError(f"--only: {unknown[0]!r} is not one of {', '.join(known)}")
    return folder / "repository", tuple(options.only or known)


def _configured(repository: Path) -> tuple[str, ...]:
    return tuple(sorted(path.parent.name for path in repository.glob("*/config.pbtxt")))


def _openai(options: argparse.Namespace, models: Sequence[str], folder: Path) -> OpenAIProcess | None:
    if options.openai_port is None:
        return None
    if DOOR not in models:
        raise ConfigError(f"--openai-port: the OpenAI server asks {DOOR}, which this part does not load")
    must_be_free(options.host, options.openai_port)
    wanted = OpenAIOptions(options.openai_port, options.host, options.drain_s, options.api_keys)
    return OpenAIProcess(wanted, folder / "openai.log")


def _started(
    server: TritonServer, openai: OpenAIProcess | None, shown: Exposure, interrupts: Interrupts
) -> int:
    server.start()
    interrupts.is_starting = False
    admin = Admin(server.http_url, server.metrics_url, headers=dict(shown.headers))
    watchers: list[Watcher] = [Supervisor(server, admin, server.stubs(), say)]
    at = f"HTTP {server.http_url}, gRPC {server.grpc_address}"
    if openai is not None:
        keeper = OpenAIKeeper(openai, server.grpc_address, say)
        at += f", OpenAI {keeper.open()}"
        watchers.append(keeper)
    say(f"Ready: {', '.join(server.options.load_models or ())}; {at}")
    return watch(server, watchers, interrupts)


def main(argv: Sequence[str] | None = None) -> int:
    """0 after an orderly stop, 1 when it cannot serve."""
    return until_ended("serve_part", serve_part, _parser().parse_args(argv))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.serve_part",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("repository", type=Path, help="a part, or a whole repository, with its deployment.yaml")
    add("--only", nargs="+", metavar="MODEL", help="load these Triton models (default: all that are there)")
    add("--settings", type=Path, help="YAML file with keys that replace those of deployment.yaml")
    for name in ("http", "grpc", "metrics"):
        add(f"--{name}-port", type=int, default=0, help="0 takes a free one (0)")
    add("--openai-port", type=int, help="serve OpenAI's API here as well; needs token_router in this part")
    add_common_options(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
