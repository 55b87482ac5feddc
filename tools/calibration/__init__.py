"""Measuring what a cutoff costs and is worth, and choosing one."""
