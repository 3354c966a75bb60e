// Nothing: main() is in the library.
