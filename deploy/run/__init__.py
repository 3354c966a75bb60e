"""One run: from a device's name to a connection, preflight, upload, execution, comparison and result."""
