"""The shell scripts that run on a device."""
