"""The programs of upstream's own tests on the engine lean."""
