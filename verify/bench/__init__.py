"""Figures of the engine lean beside upstream's and other runtimes: processes in turns, on nets of other projects."""
