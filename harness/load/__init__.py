"""The load: a client whose clock load cannot bend, and the journal it writes.

`driver` is the parent's side and `child` the process that imports Locust; between them only a
job file, a calls file and the journal. Nothing is parsed here but HTTP framing; `decode` turns
the journal into Records afterwards, with the adapter.
"""
