"""The options of the commands that test, prove and measure Slipway itself."""

from __future__ import annotations

from commands.shared import target_names
from core.cli.request import Reported, Request, one_of, option, whole
from core.errors import UsageError

KINDS = ("nets", "peers", "language")


class Test(Request):
    """Run the checks and the tests: style, types, unit tests, builds, exports, virtual devices, faults.

    Without options it runs one whole way of each kind, and the suites that are nearest to what has changed since
    everything passed here.

    Example: ./inv test --fast
    """

    fast: bool = option("what you run while you work: style, types and unit tests (under two minutes)", False)
    all: bool = option("everything: all suites, and the tests marked long", False)
    shard: str = option("with --all: one of several parts, each for a machine of its own, as 2/6")
    unit: bool = option("unit tests only", False)
    lint: bool = option("style and types only: ruff, mypy, clang-format and shellcheck", False)
    keyword: str = option("only tests whose names match, as pytest's -k; long ones, too")

    def _check(self) -> None:
        if len(self._kinds) > 1:
            what = f"{' and '.join(self._kinds)} cannot be used together."
            raise UsageError(what, "each says which tests run", f"./inv test {self._kinds[0]}")
        if self.shard and (not self.all or self.keyword):
            raise UsageError("--shard goes with --all.", "it is a part of all tests", "./inv test --all --shard 2/6")
        if self.lint and self.keyword:
            what = "--keyword does not go with --lint."
            raise UsageError(what, "it selects tests, and --lint runs none", "./inv test --keyword NAME")

    @property
    def _kinds(self) -> list[str]:
        return [f"--{name}" for name in ("unit", "lint", "fast", "all") if getattr(self, name)]

    @property
    def whole(self) -> bool:
        """Tests of all kinds run."""
        return not (self.unit or self.lint or self.fast or self.keyword)


class Agree(Request):
    """Run programs on the lean engine on every CPU model that runs here, and compare with upstream's runtime.

    Results are kept in dist/sweeps, one comparison at a time: after an interruption, the same command continues.

    Example: ./inv self.agree --target linux-arm64 --cpu cortex-a53 --program llama
    """

    target: str = option(
        "the bundle's target, or all: every target that was built (default: linux-x86_64)",
        setting=True,
        names=target_names,
    )
    cpu: str = option("only on this CPU model of the target's, native or wine (default: on all)")
    program: str = option("only programs of these names, as llama or 'mlp q*,conv fp32' (default: all)")
    sound: bool = option(
        "compare our programs of what the exporter makes beyond models instead; --program: parts of their names", False
    )
    update: bool = option("keep what was seen in docs/proofs.md", False)


class Fuzz(Request):
    """Try damaged .pte files on the engine lean: every number of every program changed, one at a time.

    What was tried is kept in dist/sweeps: after an interruption, the same command continues. Exit code 0 means that
    nothing crashed, hung or was refused without a message.

    Example: ./inv self.fuzz --program 'mlp-*'
    """

    program: str = option("names of the zoo's programs, as 'mlp-*,conv-qs8' (default: all)")


class Bench(Reported):
    """Measure the engine lean beside upstream's: nets, or a language model; or beside other runtimes, as wheels come.

    The other runtimes are ONNX Runtime, LiteRT, ncnn, OpenVINO, PyTorch and PyTorch compiled ahead of time, on twelve
    nets. All is measured in turns. What is exported and converted is kept in dist/nets, what is measured in
    dist/sweeps: after an interruption, the same command continues.

    Example: ./inv self.bench --what peers --only 'resnet18,lstm fp32' --runtimes onnxruntime,ncnn
    """

    what: str = option("nets, peers or language (default: nets)", "nets", names=one_of(*KINDS))
    runs: int = whole("rounds (default: 5)", 1, 5)
    only: str = option("names of nets or programs, as 'resnet18,* qs8'")
    runtimes: str = option("with --what peers: comma-separated names of the others (default: all)")
    update: bool = option("keep the figures for the docs, if the machine was quiet", False)

    def _check(self) -> None:
        if self.what not in KINDS:
            raise UsageError(
                f"--what {self.what!r} is not measured.", f"it is one of {', '.join(KINDS)}", "./inv self.bench"
            )
        if self.what != "peers" and (self.runtimes or self.json):
            raise UsageError("--runtimes and --json go with --what peers.", "", "./inv self.bench --what peers")
        if self.update and (self.only or self.runtimes):
            raise UsageError(
                "Figures of some only are not kept.", "--only or --runtimes was given with --update", "leave one out"
            )


class Docs(Request):
    """Build the documentation as a site in dist/site, which needs no network; a dead link is an error.

    The pages are those of docs/, with README.md as the first one. They open from the disk; search works where a server
    shows them, as python -m http.server does. The first build installs MkDocs and its theme into the cache.

    Example: ./inv self.docs
    """


class Lock(Request):
    """Write locks/ again from the pins in pyproject.toml: every wheel that may be installed, by its SHA-256.

    For those who change a version. Needs the package index; installs uv into .venv.
    """
