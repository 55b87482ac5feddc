"""What `tools.check_trtllm` asks of an installation and an engine, each part for itself."""
