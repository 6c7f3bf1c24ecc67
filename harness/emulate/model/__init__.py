"""The timing model: an engine with continuous batching, in virtual time. No socket, no clock."""
