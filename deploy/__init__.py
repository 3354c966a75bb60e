"""Devices: the inventory, transports, and the way of a program to a device and of its result back.

Importing this package costs nothing; paramiko, NumPy and pydantic are imported by the modules that use them.
"""
