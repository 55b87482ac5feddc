"""How long should each model wait before it starts a batch? The throughput model and its search.

Owns numbers only: routing and commit matrices, step latencies, queue-length thresholds and tokens per
second. Must never know a request, a token or a clock: `now` is an argument, randomness a seed.
"""
