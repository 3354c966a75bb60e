"""What proves and measures: agreement with upstream, operators, kernels, fuzzing, benchmarks, and the tests' run."""
