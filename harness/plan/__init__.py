"""The plan: how every request and due time is made, hashed before any engine starts."""
