"""The transport over SSH, by paramiko, with what the user's own OpenSSH configuration says."""
