"""Unit tests of the command-line tools."""
