"""The parts of `python -m tools.serve`: what is checked before the start, what is watched after it."""
