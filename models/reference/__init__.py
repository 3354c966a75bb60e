"""Outputs to compare devices with, and how far a device's may be from them."""
