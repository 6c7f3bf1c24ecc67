"""What this machine's load client can be trusted with: measured against a server that knows."""
