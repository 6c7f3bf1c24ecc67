"""From stored runs to figures with intervals, doubts, verdicts and cost. Never measures."""
