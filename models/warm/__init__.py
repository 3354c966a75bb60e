"""Exports in copies of a process that has loaded the exporter already: it waits for the next ``./inv export``."""
