"""trtllm-serve."""
