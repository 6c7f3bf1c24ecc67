"""One job: start the engine, play its levels, decode, store."""
