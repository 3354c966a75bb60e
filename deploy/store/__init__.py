"""The device's content-addressed store: files, locks, garbage collection, and the verification of bytes."""
