"""What ``./inv test`` does: the checks in order, with builds begun ahead."""
