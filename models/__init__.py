"""Models: the zoo, quantization schemes, export, reference outputs.

Nothing imported here costs more than a few milliseconds; torch comes in only when `models.export` really exports.
"""
