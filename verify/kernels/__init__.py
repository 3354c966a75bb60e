"""Which kernel computes which layer."""
