"""A load that several processes share: a master that plays nothing, and workers that do.

They are joined by Locust's own runners; what they say to each other is in `messages`.
"""
