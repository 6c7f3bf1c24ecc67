"""What the engines say on the wire: requests read, answers written. No socket, no clock."""
