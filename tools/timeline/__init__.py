"""Batches and hand-offs over time: read from event logs, drawn, and written as a Chrome trace."""
