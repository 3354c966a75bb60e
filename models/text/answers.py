"""What upstream's runtime answers: ``python -m models.text.answers PROGRAM TOKENS.npy COUNT SCORES.npy``.

It reads the first COUNT tokens (int64 ``[n]``) as the prompt, and then each of the others alone. The scores (float32
``[n - COUNT + 2, vocabulary]``) are those of what follows the prompt when its tokens were read one by one; then those
of what follows the prompt read at once, and of what follows each token after it.
A process of its own: the operators of language models stay in a process once they are loaded.
"""

from __future__ import annotations

import sys

import numpy as np
import torch


def main(program: str, tokens: str, count: int, scores: str) -> None:
    """Do it."""
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  # registers its operators
    from executorch.kernels import quantized  # noqa: F401
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(program).load_method("forward")
    read = torch.from_numpy(np.load(tokens))
    at_once = method.metadata.input_tensor_meta(0).sizes()[1]  # the most, where the program takes fewer as well
    positions = method.metadata.input_tensor_meta(1).sizes()
    each = bool(positions) and positions[0] != 1
    found = []
    for sizes in ([1] * count, [at_once] * (count // at_once) + [count % at_once] + [1] * (len(read) - count)):
        at = 0
        for size in filter(None, sizes):
            position = torch.arange(at, at + size) if each else torch.tensor([at])
            logits = method.execute([read[None, at : at + size], position])[0]
            at += size
            if at >= count:
                found.append(logits.float().reshape(-1, logits.shape[-1])[-1].numpy().copy())
    np.save(scores, np.stack(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
