"""Accuracy against throughput on the demo task: one model, query-level routing, token-level routing."""
