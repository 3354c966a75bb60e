"""The start of ``./inv``. Python runs it with ``-S``: slow imports (site, Invoke, the tasks) are inside the ``try``.

So a Ctrl-C during the imports ends as it does later: in one word and exit code 130, without a traceback.
"""

import os
import sys


def _listen() -> None:
    """Let Ctrl-C raise KeyboardInterrupt: ``inv`` starts Python with it ignored, so none comes earlier.

    SIGTERM, by which CI systems cancel a job, and SIGHUP, when a terminal closes, act like Ctrl-C: what runs for us,
    here and on devices, ends with us.
    """
    import _signal  # type: ignore[import-not-found]  # `signal` takes a millisecond for its enums, and a Ctrl-C would be lost in it

    listening = os.environ.pop("SLIPWAY_LISTEN", "") == "yes"
    if listening:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)

    def end(_number: int, _frame: object) -> None:
        if not listening:
            raise KeyboardInterrupt
        os.kill(os.getpid(), _signal.SIGINT)  # what delays a Ctrl-C delays this, too

    for number in (_signal.SIGTERM, _signal.SIGHUP):
        if _signal.getsignal(number) == _signal.SIG_DFL:  # nohup ignores SIGHUP
            _signal.signal(number, end)


def _main(words: list[str]) -> int:
    import site
    from pathlib import Path

    site.main()
    root = Path(__file__).resolve().parent.parent
    if root.parent.name == "_dist":  # installed: our packages are in one, which processes of ours must find, too
        sys.path[0] = str(root.parent)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")]))
        if words[:1] != ["--search-root"]:
            words = ["--search-root", str(root), *words]
    else:
        sys.path[0] = str(root)
    from core.front import run

    return run(words)


def _finish() -> None:
    """Ignore Ctrl-C from here on: the work is over, and Python would print a traceback of its own end."""
    import _signal

    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    for number in (_signal.SIGTERM, _signal.SIGHUP):
        if callable(_signal.getsignal(number)):
            _signal.signal(number, _signal.SIG_DFL)  # ours would turn into a Ctrl-C


if __name__ == "__main__":
    try:
        _listen()
        code = _main(sys.argv[1:])
        _finish()
    except KeyboardInterrupt:
        _finish()
        sys.stderr.write("Interrupted.\n")
        code = 130
    sys.exit(code)
