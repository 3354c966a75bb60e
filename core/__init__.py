"""What every package shares: errors, paths, atomic files, commands, console, and the two file formats."""
