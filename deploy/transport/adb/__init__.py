"""The transport over adb, by its own protocols."""
