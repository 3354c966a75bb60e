"""Everything that a build needs for a target: compilers, Conan profiles, emulators, and the checks on a bundle."""
