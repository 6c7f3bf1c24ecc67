"""bakeoff: start real inference engines, play one load to each, measure, compare, recommend."""
