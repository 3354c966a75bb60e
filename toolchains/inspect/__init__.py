"""What binaries are, read from the binaries: formats, needs, instructions, hardening."""
