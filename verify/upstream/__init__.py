"""The programs of upstream's own tests, and ours, on the engine lean."""
