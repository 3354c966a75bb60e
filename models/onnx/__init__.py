"""``.onnx`` programs: exported by torch, quantized and referenced by ONNX Runtime.

Nothing imported here costs anything; the onnx package and torch come in with the modules that need them.
"""
