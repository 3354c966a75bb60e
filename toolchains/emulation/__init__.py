"""Execution platforms of a target's programs on this machine: native, QEMU and Wine."""
