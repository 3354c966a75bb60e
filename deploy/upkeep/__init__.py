"""Management of devices: add, trust, verify, roll back, clear."""
