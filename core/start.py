"""Where ``./inv`` begins. Python runs it with ``-S``: what takes time (site, Invoke, the tasks) is inside the ``try``.

So a Ctrl-C during the imports ends as it does later: in one word and exit code 130, without a traceback.
"""

import os
import sys


def _listen() -> None:
    """Let Ctrl-C raise KeyboardInterrupt: ``inv`` starts Python deaf to it, so that none comes before this module."""
    import _signal  # type: ignore[import-not-found]  # `signal` takes a millisecond for its enums, and a Ctrl-C would be lost in it

    if os.environ.pop("SLIPWAY_LISTEN", "") == "yes":
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _main(words: list[str]) -> int:
    import site
    from pathlib import Path

    site.main()
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from core.front import run

    return run(words)


if __name__ == "__main__":
    try:
        _listen()
        code = _main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        code = 130
    sys.exit(code)
