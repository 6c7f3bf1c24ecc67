"""Who sends what: prompts, lengths and sampling seeds of a scenario's requests.

Everything here is a pure function of (configuration, seed, index): request *i* comes out the same
in any order, in any process, for any engine. Each kind of draw has a random stream of its own
(`scenarios.streams`), so that changing one leaves the others as they were. Nothing here
knows an engine, a clock or a socket.
"""
