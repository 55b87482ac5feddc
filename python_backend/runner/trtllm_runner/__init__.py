"""TensorRT-LLM engines, one step at a time, over a KV pool and block tables of our own.

Contract-tested; unverified on hardware until tools.check_trtllm has run. Light on purpose: torch and
tensorrt_llm are imported when an engine is built, `contract`, `engine_config` and `settings` need neither.
"""
