"""Where a target's programs run on this machine: natively, under QEMU, under Wine."""
