"""Engines that execute a batch plan."""
