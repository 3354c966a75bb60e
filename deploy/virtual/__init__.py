"""Virtual devices: their images, the processes that own them, and the private adb server."""
