"""Writes the Grafana dashboard docker/monitoring/grafana/dashboards/token_router.json from the table in
`tools.monitoring.panels`.

`python -m tools.draw_dashboard` rewrites the file; `--check` changes nothing and fails when it is old.
A test runs every query of it against a real Prometheus that scrapes a live server.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.monitoring.panels import ROWS, Panel

PAGE = Path(__file__).resolve().parent.parent / "docker/monitoring/grafana/dashboards/token_router.json"
WIDTH, COLUMNS, HEIGHT, STAT_HEIGHT = 8, 24, 8, 4
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, object]:
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        {
            "name": "instance",
            "type": "query",
            "label": "Server",
            "datasource": SOURCE,
            "query": "label_values(token_router_build_info, instance)",
            "refresh": 2,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        },
    ]
    return {
        "uid": "token-router",
        "title": "TokenRouter",
        "tags": ["token-router"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": variables},
        "panels": list(_panels()),
    }


def _panels() -> Iterator[dict[str, object]]:
    number = y = 0
    for title, panels in ROWS:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": _at(0, y, COLUMNS, 1),
        }
        y += 1
        is_stats = panels[0].kind == "stat"
        wide, high = (COLUMNS // len(panels), STAT_HEIGHT) if is_stats else (WIDTH, HEIGHT)
        for place, panel in enumerate(panels):
            number += 1
            across = COLUMNS // wide
            yield _panel(panel, number) | {
                "gridPos": _at(place % across * wide, y + place // across * high, wide, high)
            }
        y += -(-len(panels) // (COLUMNS // wide)) * high


def _at(x: int, y: int, wide: int, high: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": wide, "h": high}


def _panel(panel: Panel, number: int) -> dict[str, object]:
    targets = [
        {
            "refId": chr(ord("A") + place),
            "datasource": SOURCE,
            "legendFormat": legend,
            "expr": expression.replace("@", "token_router_"),
        }
        for place, (legend, expression) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.help,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
    }


def drawn() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 when the file is current (or was made so), 1 otherwise."""
    options = _parser().parse_args(argv)
    if not options.check:
        options.page.write_text(drawn())
        return 0
    if not options.page.exists() or options.page.read_text() != drawn():
        print(f"{options.page} is out of date: run python -m tools.draw_dashboard", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.draw_dashboard", description=__doc__)
    parser.add_argument("--page", type=Path, default=PAGE, help="(default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when it is out of date")
    return parser


if __name__ == "__main__":
    sys.exit(main())
