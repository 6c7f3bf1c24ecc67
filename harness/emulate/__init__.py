"""Emulated engines: an engine's wire over a timing model whose schedule is known.

What they give is never evidence; it is for dry runs without the hardware, for tests of our own
analysis, and to see what a load does to a server of a known capacity.
"""
