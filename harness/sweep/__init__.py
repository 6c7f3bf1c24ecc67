"""From a command line to jobs: Hydra, randomised blocks, what is already stored."""
