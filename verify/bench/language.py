"""``./inv self.bench --what language``: a language model on the engine lean beside upstream's runtime, in turns.

As a process, ``python -m verify.bench.language RUNTIME MODEL TOKENS.npy``, it is one turn of another runtime:
``upstream``, of the executorch wheel, with ``,FEATURE`` for each one that its kernels shall not see, or ``llama.cpp``,
of the package llama-cpp-python, which has no wheel: whoever compares with it installs it into a Python of their own,
and names that by ``SLIPWAY_LLAMA_PYTHON``, and a GGUF file of the same model by ``SLIPWAY_LLAMA_MODEL``.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commands.own import Bench

READ, WRITTEN = 128, 32
"""Tokens, as llama-bench's pp128 and tg32."""
MODEL = "smollm2_135m"
_BACKED = 1 << 30
"""Bytes, more than each runtime takes."""
HEADINGS = ["runtime", f"pp{READ}", f"tg{WRITTEN}", "load", "peak RSS"]
Step = Callable[[Sequence[int], int], int]
"""Reads tokens at a position, and gives the likeliest one after them."""
Figures = dict[str, float]
"""``pp`` and ``tg`` in tokens a second, ``load`` in ms, ``rss`` in bytes."""


def _hide(features: Sequence[str]) -> None:
    """Features of the processor, by cpuinfo's names or how these begin, are unknown to the kernels of the wheel.

    They ask cpuinfo, which is in one of the wheel's libraries and keeps its answer: a flag for each feature, in the
    order of its header, which torch's wheel has.
    """
    import ctypes

    import executorch
    import torch

    header = (Path(torch.__file__).parent / "include" / "cpuinfo.h").read_text(encoding="utf-8")
    fields = header.partition("struct cpuinfo_x86_isa {")[2].partition("};")[0]
    fields = re.sub(r"#if CPUINFO_ARCH_X86\n.*?#endif", "", fields, flags=re.DOTALL)  # of 32 bits
    names = re.findall(r"bool (\w+);", fields)
    library = ctypes.CDLL(str(Path(executorch.__path__[0]) / "lib" / "libexecutorch_threadpool.so"))
    library.cpuinfo_initialize()
    flags = (ctypes.c_bool * len(names)).in_dll(library, "cpuinfo_isa")
    for at, name in enumerate(names):
        flags[at] = flags[at] and not name.startswith(tuple(features))


def _upstream(model: str) -> tuple[Step, int, float]:
    import torch
    from executorch.extension.llm.custom_ops import custom_ops  # noqa: F401  # registers its operators
    from executorch.kernels import quantized  # noqa: F401
    from executorch.runtime import Runtime

    start = time.perf_counter()
    program = Runtime.get().load_program(model)
    method = program.load_method("forward")
    load = time.perf_counter() - start
    most = int(program.load_method("get_max_seq_len").execute([])[0]) - 1

    def step(tokens: Sequence[int], at: int) -> int:
        logits = method.execute([torch.tensor([tokens]), torch.tensor([at])])[0]
        return int(logits.reshape(-1, logits.shape[-1])[-1].argmax())

    return step, most, load


def _llama(model: str) -> tuple[Step, int, float]:
    from importlib import import_module

    import numpy as np

    llama_cpp: Any = import_module("llama_cpp")  # somebody else's Python has it

    threads, start = os.cpu_count(), time.perf_counter()
    loaded = llama_cpp.Llama(model, n_ctx=2048, n_threads=threads, n_threads_batch=threads, verbose=False)
    load = time.perf_counter() - start

    def step(tokens: Sequence[int], _: int) -> int:
        loaded.eval(tokens)
        scores = llama_cpp.llama_get_logits_ith(loaded.ctx, -1)
        return int(np.ctypeslib.as_array(scores, (loaded.n_vocab(),)).argmax())

    return step, READ, load


def _turn(runtime: str, model: str, tokens: Sequence[int]) -> Figures:
    """One process' figures: the prompt, then each token alone."""
    name, *hidden = runtime.split(",")
    if hidden:
        _hide(hidden)
    step, most, load = (_upstream if name == "upstream" else _llama)(model)
    start, token = time.perf_counter(), 0
    for at in range(0, len(tokens), most):
        token = step(tokens[at : at + most], at)
    read = time.perf_counter() - start
    start = time.perf_counter()
    for at in range(len(tokens), len(tokens) + WRITTEN):
        token = step([token], at)
    wrote = time.perf_counter() - start
    status = Path("/proc/self/status").read_text(encoding="ascii")  # getrusage counts what the parent had
    rss = int(status.partition("VmHWM:")[2].split()[0]) << 10
    return {"pp": len(tokens) / read, "tg": WRITTEN / wrote, "load": load * 1000, "rss": rss}


def run(request: Bench) -> None:
    """Measure in turns, in random order, and print; with ``--update`` keep the figures for the docs."""
    from commands.compare_text import Pace
    from core import console
    from core.console.units import duration, size
    from core.processes.commands import run as run_command
    from deploy.run.generate import speeds
    from deploy.run.needs import runner_here
    from deploy.run.runner import Generated
    from models.text import source
    from verify.bench.measuring import back_memory, engine, machine
    from verify.tables import Table, table_of

    bundle, program = engine("lean"), source.exported(source.find(MODEL))
    found: dict[str, list[Figures]] = {}
    reading = 0.0
    with tempfile.TemporaryDirectory(prefix=".measuring-", dir=program.parent) as place:
        folder = Path(place)
        tokens = Pace(folder).prompt(program).tokens

        def lean(*flags: str) -> Figures:
            nonlocal reading
            words = [f"--model_path={program}", f"--prompt={tokens}", f"--generate={WRITTEN + 1}", "--stops=none"]
            kept = folder / f"weights{''.join(flags).removeprefix('--cpu_features=')}"  # of the kernels that are chosen
            words += [f"--json={folder / 'result.json'}", f"--weights_cache={kept}", *flags]
            subprocess.run([*runner_here(bundle), *words], check=True, capture_output=True)
            said = json.loads((folder / "result.json").read_text(encoding="utf-8"))
            pace, reading = speeds(Generated.model_validate(said["generated"])), said["weights"]["bytes"]
            pp, tg = pace[f"pp{READ}"], pace[f"tg{WRITTEN}"]
            return {"pp": pp, "tg": tg, "load": said["load_ms"], "rss": said["peak_rss_bytes"]}

        def upstream(*hidden: str) -> Figures:
            said = folder / "upstream.log"  # torch talks, too
            words = ("verify.bench.language", ",".join(["upstream", *hidden]), str(program), str(tokens))
            with said.open("wb") as log, source.child(*words, log=log) as one:
                one.communicate()
            return dict(json.loads(said.read_text(encoding="utf-8").splitlines()[-1]))

        def llama() -> Figures:
            words = [os.environ["SLIPWAY_LLAMA_PYTHON"], __file__, "llama.cpp", os.environ["SLIPWAY_LLAMA_MODEL"]]
            done = subprocess.run([*words, str(tokens)], check=True, capture_output=True, text=True)
            return dict(json.loads(done.stdout))

        runtimes: dict[str, Callable[[], Figures]] = {
            "lean": lean, "lean without AVX512's VNNI": lambda: lean("--cpu_features=-avx512_vnni"),
            "lean with AVX2 alone": lambda: lean("--cpu_features=-avx512f,-avx_vnni"),
            "executorch, the wheel's": upstream, "that without AVX512's VNNI": lambda: upstream("avx512vnni"),
            "that with AVX2 alone": lambda: upstream("avx512", "avxvnni"),
        }  # fmt: skip
        if "SLIPWAY_LLAMA_PYTHON" in os.environ:
            runtimes["llama.cpp, Q4_1"] = llama
        for name, one in runtimes.items():
            if name.startswith("lean"):
                one()  # keeps the packed weights
        os.sync()  # what is written behind a run would share the processor with the next
        for turn in range(request.runs):
            console.note(f"round {turn + 1} of {request.runs}")
            for name in random.sample(list(runtimes), len(runtimes)):
                back_memory(_BACKED)
                found.setdefault(name, []).append(runtimes[name]())
    rows = []
    for name in runtimes:
        pp, tg, load, rss = (statistics.median(one[key] for one in found[name]) for key in ("pp", "tg", "load", "rss"))
        rows.append([name, f"{pp:,.0f}", f"{tg:,.0f}", duration(load), size(int(rss))])
    ours = statistics.median(one["tg"] for one in found["lean"])
    words = [*runner_here(bundle), "--roofline", f"--cpu_threads={os.cpu_count()}", "--json"]
    limit = max(one["gbytes_per_s"] for one in json.loads(run_command(words).stdout)["roofline"])
    about = (
        f"{MODEL}, {source.find(MODEL).scheme}, tokens a second, medians of {request.runs} rounds in random order; to "
        f"write, lean reads {ours * reading / 1e9:.0f} GB of weights a second, {ours * reading / 1e9 / limit:.0%} of "
        f"what this memory gives; {machine()}"
    )
    if request.update:
        Table("docs/models.md", "language").write(f"{table_of(HEADINGS, rows)}\n{about}\n")
    console.table("A language model", HEADINGS, rows, caption=about)


if __name__ == "__main__":
    import numpy

    print(json.dumps(_turn(sys.argv[1], sys.argv[2], [int(one) for one in numpy.load(sys.argv[3])])))  # noqa: T201
