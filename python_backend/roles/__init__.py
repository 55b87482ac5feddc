"""Composition roots: each builds the parts of one process, starts them and stops them in reverse."""
