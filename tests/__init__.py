"""The tests of Slipway."""
