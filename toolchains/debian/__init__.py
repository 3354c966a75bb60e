"""Debian packages without root: sources, signatures, trees."""
