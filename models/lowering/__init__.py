"""From a module to a .pte: quantization, partitioners, delegates, and what they refuse."""
