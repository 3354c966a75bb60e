"""How bytes and commands reach a device: what every transport offers, and the one to this machine."""
