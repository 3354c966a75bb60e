"""Go on with a text: ``generate.py model.pte ids.txt 32``. Numbers of tokens in and out, each as it comes."""

from __future__ import annotations

import sys
from pathlib import Path

import slipway_runtime


def main(model: str, source: str, count: str) -> None:
    """Print at most ``count`` tokens, each on a line of its own."""
    program = slipway_runtime.load(model)
    with slipway_runtime.Session(program) as session:
        session.set_sampling()  # temperature=0.7, top_k=40, top_p=0.95, seed=1: another text for each seed
        ids = [int(word) for word in Path(source).read_text(encoding="ascii").split()]
        for _ in range(int(count)):
            session.feed(ids)
            ids = [session.sample()]
            sys.stdout.write(f"{ids[0]}\n")
            sys.stdout.flush()
            if ids[0] in session.stops or session.position == session.context:
                break


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except slipway_runtime.Error as error:
        sys.stderr.write(f"{error.message}\n{error.fix}\n")
        sys.exit(error.code)
