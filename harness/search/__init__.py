"""The search for the highest rate that meets an SLO, as decisions on what was seen. Sans-IO.

Nothing here starts a load: `bracket` says which rate to try next, `sequential` when a rate has
passed or failed, `divergence` when waiting longer is of no use. Source: method.md 2.1.
"""
