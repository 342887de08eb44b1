"""Markov chains on the full batch: exact, or with an error that is known."""
