"""The zoo's networks, in plain torch. Imported only by an export: nothing else here may import torch."""
