"""What people do with devices besides running on them: add, trust, verify, roll back, clear."""
