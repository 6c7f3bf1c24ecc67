"""Engines as processes: environments, start, readiness, telemetry, stop, machine facts."""
