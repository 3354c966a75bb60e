"""Language models: their files, their export by upstream's own exporter, their tokenizers and the host's answers."""
