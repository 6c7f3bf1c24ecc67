"""How levels are played: who sends when, and what the load process sees of itself meanwhile."""
