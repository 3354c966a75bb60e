"""The command line: start, settings, tasks, help, completion, and errors as messages."""
