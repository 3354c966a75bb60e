"""What ``./inv test`` does: the checks in order, and which tests run."""
