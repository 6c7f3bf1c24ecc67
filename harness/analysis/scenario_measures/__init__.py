"""What a scenario is about beyond the standard metrics: its own figures, by name."""
