"""Programs that we run, and sweeps of many such runs."""
