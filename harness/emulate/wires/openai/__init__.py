"""A plain server of OpenAI's API, which most others are made from."""
