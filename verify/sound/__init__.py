"""Sound programs of many kinds, made by upstream's exporter alone: all that it makes and upstream's runtime runs."""

MODEL, RECORD = "model.pte", "runs.json"
"""Files of a program that is kept: itself, and what is known of its runs."""
