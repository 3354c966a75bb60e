"""Windows over SSH: its OpenSSH server, cmd or PowerShell as the login's shell, and a small program in place of sh."""
