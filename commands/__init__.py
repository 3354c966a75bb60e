"""Commands that need several packages: export with `models`, build with `toolchains`, run with `deploy`."""
