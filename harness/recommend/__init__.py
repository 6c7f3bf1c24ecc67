"""The recommender: from a summary of measurements to a decision, with the way it was reached."""
