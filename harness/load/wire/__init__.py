"""The client of the hot path: sockets, stamps, framing; what is received is not understood here."""
