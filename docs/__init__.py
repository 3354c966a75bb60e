"""The documentation, and what keeps its generated parts true."""
