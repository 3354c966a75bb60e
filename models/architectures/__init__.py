"""Further architectures, small and with random weights: what engines are compared on (docs/lean.md)."""
