"""Writes the config.pbtxt of every Triton model of a deployment.

    python -m tools.make_repository model_repository/deployment.yaml
    python -m tools.make_repository model_repository/deployment.yaml --check
    python -m tools.make_repository model_repository/deployment.yaml --only large --out part/repository

Every config is complete, because launchers start Triton with --disable-auto-complete-config. `--check`
writes nothing and fails, naming the files, when the repository is not what the deployment says.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from python_backend.config import Deployment, load_deployment
from router_backend.core.errors import ConfigError
from tools.repository.models import configs
from tools.repository.part import write_part
from tools.repository.pbtxt import rendered


def repository_files(deployment: Deployment) -> dict[str, str]:
    """Text by path in the repository; ConfigError when a model's name is taken by a door."""
    files = {}
    for config in configs(deployment):
        files[f"{config.name}/config.pbtxt"] = rendered(config)
        files[f"{config.name}/1/.gitkeep"] = ""
    return files


def stale(files: dict[str, str], folder: Path) -> list[str]:
    """Files that are missing or differ, by name."""
    return [name for name, text in files.items() if not _is_current(folder / name, text)]


def write(files: dict[str, str], folder: Path) -> None:
    """Bring `folder` up to date; what is current is left alone."""
    for name in stale(files, folder):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name])


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    folder = options.out or options.deployment.parent
    try:
        files = repository_files(load_deployment(options.deployment))
        if options.only:
            return _write_part(options, files)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    behind = stale(files, folder)
    if not options.check:
        write(files, folder)
    if options.json:
        print(json.dumps({"files": sorted(files), "stale": behind}))
    elif behind:
        verb = "differs from the deployment" if options.check else "written"
        print("\n".join(f"{folder / name}: {verb}" for name in behind))
    return 1 if options.check and behind else 0


def _write_part(options: argparse.Namespace, files: dict[str, str]) -> int:
    """What one host needs: docs/hosts.md."""
    if options.out is None:
        raise ConfigError("--only: name a folder of its own with --out")
    write_part(options.deployment, options.out, options.only, files)
    what = {"repository": str(options.out), "models": options.only}
    print(json.dumps(what) if options.json else f"{options.out}: loads {', '.join(options.only)}")
    return 0


def _is_current(path: Path, text: str) -> bool:
    if not text:  # a version folder with anything in it is as good as its marker
        return path.parent.is_dir() and any(path.parent.iterdir())
    return path.exists() and path.read_text() == text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.make_repository", description="Write every model's config.pbtxt."
    )
    parser.add_argument("deployment", type=Path, help="the deployment's YAML file")
    parser.add_argument("--out", type=Path, help="model repository to write; default: the file's folder")
    parser.add_argument(
        "--only", nargs="+", metavar="MODEL", help="write one host's part: these Triton models and no others"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not current")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
