"""Tests of the emulated pair and of what measures it."""
