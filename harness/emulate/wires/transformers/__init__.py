"""`transformers serve`."""
