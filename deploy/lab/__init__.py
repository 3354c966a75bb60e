"""Devices that a labgrid coordinator lends."""
