"""Targets, engines, programs and devices: planned, run in parallel, and reported."""
