"""The start of ``./inv``. Python runs it with ``-S``: slow imports (site, Invoke, the tasks) are inside the ``try``.

With ``--bootstrap`` it is the start of `core.environment.bootstrap`, in a Python that has nothing but its own library.
So a Ctrl-C during the imports ends as it does later: in one word and exit code 130, without a traceback.
"""

import os
import sys

TYPE_CHECKING = False  # typing's own takes milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable


def again(lost: "sys.UnraisableHookArgs") -> None:
    """Send a Ctrl-C once more that Python would only print: it came in a destructor or a weak reference's callback.

    Every import has one. A thread sends it, for here it would be lost in the same way.
    """
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    import _signal  # type: ignore[import-not-found]
    import _thread

    def send() -> None:
        import time

        time.sleep(0.01)  # until the main thread has left the callback
        os.kill(os.getpid(), _signal.SIGINT)

    _thread.start_new_thread(send, ())


def _listen() -> None:
    """Let Ctrl-C raise KeyboardInterrupt: ``inv`` starts Python with it ignored, so none comes earlier.

    SIGTERM, by which CI systems cancel a job, and SIGHUP, when a terminal closes, act like Ctrl-C: what runs for us,
    here and on devices, ends with us.
    """
    import _signal  # `signal` takes a millisecond for its enums, and a Ctrl-C would be lost in it

    listening = os.environ.pop("SLIPWAY_LISTEN", "") == "yes"
    sys.unraisablehook = again
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

    root = Path(__file__).resolve().parent.parent.parent
    installed = root.parent.name == "_dist"  # our packages are in one, which processes of ours must find, too
    sys.path[0] = str(root.parent if installed else root)
    site.main()
    if words[:1] == ["--bootstrap"]:
        from core.environment.bootstrap import guarded

        return guarded(words[1:])
    if installed:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [sys.path[0], os.environ.get("PYTHONPATH")]))
        if words[:1] != ["--search-root"]:
            words = ["--search-root", str(root), *words]
    _import_invoke()
    from core.cli.main import run

    return run(words)


def _import_invoke() -> None:
    """Import Invoke without two modules of Python's that no command needs, and that take a third of each start."""
    needless: dict[str, dict[str, object]] = {"unittest.mock": {"Mock": object}, "importlib.metadata": {"version": str}}
    stands = {name: has for name, has in needless.items() if name not in sys.modules}
    for name, has in stands.items():
        sys.modules[name] = type(sys)(name)
        sys.modules[name].__dict__.update(has)
    try:
        import invoke  # noqa: F401
    finally:
        for name in stands:
            del sys.modules[name]


def finish() -> None:
    """Ignore Ctrl-C from here on: the work is over, and Python would print a traceback of its own end."""
    import _signal

    _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
    for number in (_signal.SIGTERM, _signal.SIGHUP):
        if callable(_signal.getsignal(number)):
            _signal.signal(number, _signal.SIG_DFL)  # ours would turn into a Ctrl-C


def ended(work: "Callable[[], int]") -> int:
    """The exit code of ``work``, which a Ctrl-C may end; a second one may come before the first has been said."""
    try:
        return _ended(work)
    except KeyboardInterrupt:  # a second one, in the few moments that `_ended` does not guard
        return _ended(None)


def _ended(work: "Callable[[], int] | None") -> int:
    interrupted, code = work is None, 130
    while True:
        try:
            if work and not interrupted:
                code = work()
            finish()
            break
        except KeyboardInterrupt:
            interrupted, code = True, 130
        except Exception as error:
            from core.processes.interrupts import from_ctrl_c

            if not from_ctrl_c(error):
                raise
            interrupted, code = True, 130
    if interrupted:
        sys.stderr.write("Interrupted.\n")
    return code


def _work() -> int:
    _listen()
    return _main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(ended(_work))
