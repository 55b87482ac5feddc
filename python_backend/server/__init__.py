"""The only place that speaks Triton's Python API."""
