"""What a command does that takes several rooms: export with `models`, build with `toolchains`, run with `deploy`."""
