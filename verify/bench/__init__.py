"""Figures: of our own commands, of engines, of transfers."""
