"""Command-line tools, each run from the root as ``python -m tools.NAME``."""
