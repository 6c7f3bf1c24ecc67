"""vLLM, on GPUs and CPUs."""
