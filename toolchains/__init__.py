"""From a target's name to compilers, Conan profiles, emulators and, in the end, a bundle."""
