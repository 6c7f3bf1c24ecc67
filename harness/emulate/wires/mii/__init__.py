"""DeepSpeed-MII: its gRPC service and its OpenAI server."""
