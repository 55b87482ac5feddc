"""What `tools.build_engine` and `tools.check_trtllm` know about engines, without importing TensorRT-LLM."""
