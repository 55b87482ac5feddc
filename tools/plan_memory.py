"""How the models of a deployment share the memory of each device, before anything is started.

python -m tools.plan_memory model_repository/deployment.yaml --budget 8GiB
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from python_backend.config import load_deployment
from python_backend.roles.memory import memory_plans
from router_backend.core.errors import ConfigError
from router_backend.planner.memory import MemoryPlan


def document(plan: MemoryPlan) -> dict[str, Any]:
    """Bytes and tokens, for a program."""
    models = [
        asdict(model.footprint)
        | {"kv_tokens": model.kv_tokens, "kv_bytes": model.kv_bytes, "total": model.total}
        for model in plan.models
    ]
    return {"device": plan.device, "budget": plan.budget, "total": plan.total, "models": models}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.plan_memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("deployment", type=Path, help="deployment.yaml, in its model repository")
    parser.add_argument("--budget", help="in place of the file's memory_budget: a size such as 8GiB, or auto")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the plan; 0, or 2 with the sum that does not fit on stderr."""
    options = _parser().parse_args(argv)
    try:
        deployment = load_deployment(options.deployment)
        if options.budget:
            deployment = deployment.model_copy(update={"memory_budget": options.budget})
        plans = memory_plans(deployment, options.deployment.parent)
    except ConfigError as error:
        print(f"plan_memory: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps({"plans": [document(plan) for plan in plans]}))
    else:
        print("\n".join(line for plan in plans for line in plan.lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
