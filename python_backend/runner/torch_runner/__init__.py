"""Decoder-only Hugging Face models in plain PyTorch over a paged KV cache.

Light on purpose: torch is imported by `runner.py` and below, when the engine is chosen. `settings.py`
and `model_config.py` need no torch, so that other processes can read a model's facts.
"""
