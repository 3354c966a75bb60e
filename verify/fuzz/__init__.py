"""Damaged programs: by chance, and number by number."""
