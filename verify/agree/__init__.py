"""The zoo on the engine lean beside upstream's runtime, on every CPU."""
