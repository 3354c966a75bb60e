"""Nets that nobody here wrote, from packages of PyPI: exported, then measured on the engines lean and executorch."""
