"""The device's content-addressed store: files, locks, garbage collection, and what vouches for bytes."""
