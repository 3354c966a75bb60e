"""The tests, and the two programs behind ./inv test and ./inv bench."""
