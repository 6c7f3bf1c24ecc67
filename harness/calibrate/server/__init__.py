"""The reference server: streams on a schedule that is known, every send logged.

Run it by `python -m harness.calibrate.server`. Linux, one process, one thread, standard library.
"""
