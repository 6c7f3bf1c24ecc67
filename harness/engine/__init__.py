"""Engine processes: their environments, start, readiness, telemetry, and a clean end."""
