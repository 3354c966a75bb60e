"""Compiler families, and what they compile against."""
