"""What a device is: the inventory, the facts that a probe reads, its conditions, and whose its root is."""
