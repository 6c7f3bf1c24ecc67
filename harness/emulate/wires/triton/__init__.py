"""Triton in front of TensorRT-LLM."""
