"""Samples for ``./inv compare``: read from files or the user's function, and given to the float model."""
