"""The proof program of native packages on every CPU model."""
