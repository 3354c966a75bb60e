"""The files that one room writes and another reads: a program's description, a bundle's manifest, samples."""
