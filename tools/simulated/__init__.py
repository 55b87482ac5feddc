"""The jobs of `python -m tools.simulate`: what-if runs and the paper's schedule figure."""
