"""Makes CURVE keys for the endpoints of a deployment whose `transport` is tcp.

    python -m tools.make_keys model_repository/deployment.yaml

One pair per subserver and per door; a pair that is there stays. Give each host all `*.public` files and the
`*.secret` files of the endpoints that run on it, and keep the folder out of version control. For Kubernetes:
`kubectl create secret generic router-keys --from-file=FOLDER` (docs/kubernetes.md).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from python_backend.config import load_deployment
from python_backend.transport.keyring import write_keys
from router_backend.core.errors import ConfigError

FOLDER = "keys"


def main(argv: Sequence[str] | None = None) -> int:
    """0; 2 for a deployment that cannot be read, with the reason on stderr."""
    options = _parser().parse_args(argv)
    try:
        deployment = load_deployment(options.deployment)
    except ConfigError as error:
        print(f"make_keys: {error}", file=sys.stderr)
        return 2
    folder = options.out or options.deployment.parent / (deployment.keys or FOLDER)
    made = write_keys(folder, deployment.endpoints)
    if options.json:
        print(json.dumps({"folder": str(folder), "endpoints": list(deployment.endpoints), "made": made}))
    else:
        print(f"{folder}: keys of {', '.join(made) or 'nobody: all are there'}")
        print("Every host needs all *.public files and the *.secret files of its own endpoints only.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.make_keys",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("deployment", type=Path, help="the deployment's YAML file")
    parser.add_argument("--out", type=Path, help="folder of the keys; default: the deployment's `keys`")
    parser.add_argument("--json", action="store_true", help="print what was done as JSON")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
