"""The order of the runner's functions in its file: what runs comes first, and close together.

A system maps the 64 KiB around each page of a program that is touched. The functions that one net runs through are a
fifth of the runner, but in the order of the source files they are spread over most of it. QEMU says which functions
the programs of ``./inv self.agree`` run through, and the nets that ``./inv self.bench --nets`` has exported.

    python -m verify.function_order    measure (about 6 minutes), and write engines/lean/function_order.ld
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from core import console
from core.errors import RunError, SlipwayError, UsageError
from core.files import write_atomic
from core.formats.bundle import Bundle
from core.paths import ROOT, bundle_dir, dist_dir
from core.processes.commands import run
from toolchains.compilers.sysroot import sysroot
from toolchains.emulation import emulators
from toolchains.targets import get_target

ORDER = ROOT / "runtime" / "engines" / "lean" / "function_order.ld"
PROCESSORS = (("linux-x86_64", "Haswell"), ("linux-arm64", "cortex-a76"))
"""Where programs run. The other targets' functions have the same names, but for kernels."""
_LARGEST = 8 << 20
"""Bytes of the largest program that runs: a larger one takes minutes and runs through the same functions."""
_NEARLY_ALL = 0.8
"""Least share of a processor's programs."""
_WHOLE = ("libcpuinfo.a", "libpthreadpool.a")
"""Libraries whose functions have no sections of their own. Every program calls them."""
_LEAST = 2
"""Programs of one processor that call a function which gets a place."""
_SECONDS = 900.0


def functions_run(target: str, cpu: str, program: Path, inputs: Sequence[Path]) -> set[str]:
    """The runner's functions that one execution of ``program`` runs through, as the compiler names them.

    Raises:
        RunError: the runner failed.
    """
    bundle = Bundle.load(bundle_dir(target, "lean"))
    emulator = emulators.user_argv(get_target(target), cpu, sysroot(get_target(target)))
    with tempfile.TemporaryDirectory(prefix="slipway-order-") as folder:
        log = Path(folder, "log")
        words = ["--num_executions=1", "--warmup=0", "--cpu_threads=2", f"--output_file={folder}/out", "--json"]
        words += [f"--model_path={program}", *([f"--inputs={','.join(map(str, inputs))}"] if inputs else [])]
        argv = [*emulator, "-d", "in_asm", "-D", str(log), bundle.emulated_argv[-1], *words]
        run(
            argv,
            timeout=_SECONDS,
            error=RunError,
            what=f"{program} on {target}",
            hint=f"./inv self.agree --target {target}",
        )
        return set(re.findall(r"^IN: (\S+)$", log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE))


def windows(program: Path, functions: Collection[str]) -> int:
    """How many windows of 64 KiB of an ELF program its ``functions`` begin in."""
    from elftools.elf.elffile import ELFFile

    with program.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".symtab").iter_symbols()
        return len({symbol["st_value"] >> 16 for symbol in symbols if symbol.name in functions})


def pattern(function: str) -> str:
    """The linker script's pattern for a function and its like.

    A function of ours is named without its parameters, which change more often. An instance of a template and an
    operator are named as they are: a pattern would bring others along, which nobody calls.
    """
    found = re.match(r"_Z(Z?NK?)(\d.*)", function)
    if not found:
        return function
    prefix, rest = found.groups()
    parts = ""
    while number := re.match(r"\d+", rest):
        end = number.end() + int(number[0])
        parts, rest = parts + rest[:end], rest[end:]
    if rest.startswith(("E", "B")):
        return f"_Z{prefix}{parts}*"
    # A constructor or destructor has several names for the same code, one of which its section has.
    return f"_Z{prefix}{parts}" + re.sub(r"^([CD])[012](?=E)", r"\1[012]", rest)


def text(runs: Iterable[Sequence[Collection[str]]]) -> str:
    """The linker script: first what nearly all programs call, then what the same programs call together.

    Args:
        runs: for each processor, for each program, the functions it runs through.
    """
    share: dict[str, float] = {}
    callers: dict[str, list[int]] = {}
    begin = 0
    for programs in runs:
        of_processor: dict[str, list[int]] = {}
        for number, functions in enumerate(programs, begin):
            for name in {pattern(function) for function in functions}:
                of_processor.setdefault(name, []).append(number)
        for name, numbers in of_processor.items():
            if len(numbers) >= _LEAST:
                share[name] = max(share.get(name, 0.0), len(numbers) / len(programs))
                callers.setdefault(name, []).extend(numbers)
        begin += len(programs)

    def together(name: str) -> list[bool]:
        return [number not in callers[name] for number in range(begin)]

    everybodys = sorted(name for name in share if share[name] >= _NEARLY_ALL)
    others = sorted(share.keys() - set(everybodys), key=lambda name: (together(name), name))
    return "\n".join(
        [
            "/* The order of functions: python -m verify.function_order. Names that a runner lacks do no harm. */",
            "SECTIONS { .text.first : {",
            "  *(.text.startup .text.startup.*)",
            *(f"  *(.text.{name})" for name in everybodys),
            *(f"  *{library}:*(.text .text.*)" for library in _WHOLE),
            "  /* not called by nearly all programs */",
            *(f"  *(.text.{name})" for name in others),
            "} } INSERT BEFORE .text;",
            "",
        ]
    )


def _programs() -> Mapping[str, tuple[Path, tuple[Path, ...]]]:
    """Files and inputs by name."""
    from verify.agree.programs import chosen, prepare

    found = {one.about.name: (one.file, one.inputs) for one in prepare(chosen(""))}
    for file in sorted((dist_dir() / "nets").glob("*/model.pte")):
        inputs = tuple(sorted(file.parent.glob("input*.npy"), key=lambda path: (len(path.name), path.name)))
        found[f"net {file.parent.name}"] = (file, inputs)
    return {name: files for name, files in found.items() if files[0].stat().st_size <= _LARGEST}


def measure() -> list[list[set[str]]]:
    """What `text` takes."""
    from toolchains.bundle.builder import build

    programs = _programs()
    runs = []
    for target, cpu in PROCESSORS:
        build(target, "lean")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            futures = [pool.submit(functions_run, target, cpu, *files) for files in programs.values()]
            runs.append([future.result() for future in futures])
    return runs


def main(words: Sequence[str]) -> None:
    """See the module's text.

    Raises:
        UsageError: there is a word.
    """
    if words:
        raise UsageError("It takes no words.", " ".join(words), "python -m verify.function_order")
    write_atomic(ORDER, text(measure()))
    console.note(f"wrote {ORDER.relative_to(ROOT)}: build again")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SlipwayError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
