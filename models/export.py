"""Export: a model and a scheme in, a folder with program, references and description out.

Importing this costs little; torch comes with the first real export of a process.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.console import note, shown
from core.console.units import counted, size
from core.errors import ConfigError, ExportError, SlipwayError
from core.files import locked, new_folder, sha256_bytes, sha256_file, write_json
from models.lowering.progress import Stages, log_path, quiet, trace
from models.reference.host import Host
from models.request import DESCRIPTION, Request, key, partitioners, resolve, stale, versions
from models.request.options import Options
from models.users.packages import install, pins

if TYPE_CHECKING:
    from core.formats.program import Program
    from models.samples.taking import Taken

RECORD = "model.etrecord"
_NEEDS_STRICT = ("expected compiled_fn to be GraphModule",)
"""What the exporter says of models that only torch.export's strict mode exports: transformers' static caches."""


def check_ours(folder: Path, description: str = DESCRIPTION) -> None:
    """Refuse to replace a folder that an export did not make: each leaves the file ``description`` in its own.

    Raises:
        ConfigError: it holds other files.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / description).is_file():
        raise ConfigError(
            f"The export cannot write to {folder}.",
            "the folder holds other files than a program",
            f"move {folder} away",
        )


def _make(request: Request, folder: Path, stages: Stages, host: Host) -> Program:
    """Export into ``folder``. Everything heavy is imported here and below."""
    stages.show("loading the exporter")
    host.start()
    try:
        return _made(request, folder, stages, host, strict=request.options.strict)
    except ExportError as error:
        if request.options.strict or not any(words in error.cause for words in _NEEDS_STRICT):
            raise
        return _made(request, folder, stages, host, strict=True)


def _made(request: Request, folder: Path, stages: Stages, host: Host, strict: bool) -> Program:
    """Make the model, then its program, by torch.export's strict mode if it is to be ``strict``."""
    import torch

    from core.formats.program import Program
    from models import loading
    from models.samples import taking

    make = _lower
    if request.format == "onnx":
        from models.onnx.making import make
    torch.manual_seed(0)
    stages.show("making the model")
    model = replace(loading.load(request), strict=strict)
    with model.entered():
        taken = taking.take(request, model)
        own = make(request, taken, folder, stages, host)
    return Program(
        name=request.name,
        format=request.format,
        model=request.model,
        scheme=request.scheme.name,
        file=request.file,
        size=(folder / request.file).stat().st_size,
        sha256=sha256_file(folder / request.file),
        partitioners=request.partitioners,
        options={**request.options.to_json(), **({"strict": True} if strict else {})},
        export_key=key(request),
        versions={**versions(request.format), **pins(request.packages)},
        seconds=round(stages.seconds, 2),
        files={path.name: path.stat().st_size for path in sorted(folder.iterdir())},
        source=os.fspath(request.source) if request.zoo is None else "",
        depends=model.depends,
        **{**own, "warnings": (*taken.warnings, *own["warnings"])},
    )


def _lower(request: Request, taken: Taken, folder: Path, stages: Stages, host: Host) -> dict[str, Any]:
    """From the module to the ``.pte`` with its references; what only this knows of the description."""
    from core.formats.program import Quantization
    from models.lowering import graphs, lowering, quantize, shortcuts
    from models.reference import referencing
    from models.samples import taking

    model = taken.model
    want, want_before = referencing.eager_methods(model)
    with shortcuts.in_torch(), shortcuts.in_lowering():
        stages.show("exporting" if not request.scheme.weight_bits else "exporting and quantizing")
        quantized = quantize.apply(model, request.scheme, request.options)
        before = {
            one.method: quantize.apply(replace(one, strict=model.strict), request.scheme, request.options, again=True)
            for one in model.before
        }
        scheme = quantized.scheme or request.scheme
        stages.show("lowering")
        chosen = partitioners.make(request.partitioners, request.options)
        every = {name: one.program for name, one in {**before, model.method: quantized}.items()}
        methods = lowering.lower_all(every, chosen)
        lowered = methods[model.method]
    placement = lowering.describe(lowered, model.method)
    skipped, nothing = lowering.skipped(quantized.program, lowered, request.scheme, request.options.layers)
    lowered.manager.save(str(folder / request.file))

    stages.show("running the reference")
    warnings = [f"not quantized: {layer}" for layer in skipped]
    if nothing:
        warnings.append(f"{request.scheme.name} quantized nothing at all: the program computes in float")
    first, remarks = referencing.run_earlier(request, scheme, folder, host, before, methods, want_before)
    ran, more = referencing.make(
        request, scheme, folder, host, quantized, lowered, placement,
        want=want, method=model.method, first=first,
    )  # fmt: skip
    warnings += [*remarks, *more, *_save_record(lowered.manager, quantized.inputs, folder / RECORD)]
    return {
        **ran,
        **vars(placement),
        "etrecord": RECORD if (folder / RECORD).is_file() else "",
        "method": model.method,
        "before": first,
        "sizes": graphs.input_sizes(quantized.program),
        "quantization": Quantization(scheme=scheme.name, skipped=skipped),
        "classes": taking.classes(request, taken, want[1][0] if want[1] else None, folder),
        "state": lowered.state,
        "warnings": warnings,
    }


def _save_record(manager: Any, inputs: Sequence[Any], file: Path) -> list[str]:
    """Save what ``./inv inspect`` reads; a warning if upstream cannot write it: the program is right without."""
    from models.lowering.causes import reason

    try:
        record = manager.get_etrecord()
        record.update_representative_inputs([list(inputs)])
        record.save(str(file))
    except (MemoryError, OSError):
        raise
    except Exception as error:  # noqa: BLE001  # upstream's serializer raises whatever it meets
        trace(error)
        file.unlink(missing_ok=True)
        lost = "./inv inspect finds neither its modules nor PyTorch's values"
        return [f"upstream cannot write the program's ETRecord ({reason(error)}): {lost}"]
    return []


def _say(program: Program, folder: Path) -> None:
    """The result, in one line, and each warning."""
    outside = counted(sum(one.count for one in program.undelegated), "operator")
    parts = f", {counted(program.delegates, 'delegate call')}, {outside} outside" if program.format == "pte" else ""
    note(f"{program.name}: {size(program.size)}{parts}, {program.seconds:.1f} s -> {shown(folder)}")
    for warning in program.warnings:
        note(f"Warning: {program.name}: {warning}")


def _forget() -> None:
    """Free the compiler's caches between exports; over the whole zoo they would grow too large."""
    import torch

    torch._dynamo.reset()  # the public name for this is torch.compiler.reset, which imports more
    gc.collect()


def _sweep(folder: Path) -> None:
    """Remove files of killed exports to ``folder``; the caller holds its lock, so that no export is running."""
    for left in folder.parent.glob(f".{folder.name}.*"):
        if left.suffix in (".tmp", ".old"):
            shutil.rmtree(left, ignore_errors=True)


def sweep(request: Request) -> None:
    """Remove what a crashed export of ``request`` has left, unless another one runs."""
    with locked(_lock(request)):
        _sweep(request.folder)


def _lock(request: Request) -> str:
    return f"program-{sha256_bytes(str(request.folder).encode())[:16]}"


def export_request(request: Request, force: bool, host: Host) -> Path:
    """What `export` does with a request that is checked already; the folder."""
    # Two exports to one folder take turns; the second finds the result of the first.
    with locked(_lock(request)):
        if not force:
            why = stale(request)
            if not why:
                return request.folder
            if (request.folder / DESCRIPTION).is_file():
                note(f"{request.name}: exporting again: {why}")
        check_ours(request.folder)
        if request.packages:
            install(request.packages)
        _sweep(request.folder)
        log = host.log = log_path(request.name)
        host.delegates = request.partitioners != (partitioners.NONE,)
        with new_folder(request.folder) as folder:
            try:
                with quiet(log) as terminal, contextlib.closing(Stages(request.name, terminal)) as stages:
                    program = _make(request, folder, stages, host)
                    stages.done()
            except ExportError as error:
                with log.open("a", encoding="utf-8", errors="backslashreplace") as kept:
                    traceback.print_exception(error, file=kept)
                cause = "\n".join(filter(None, [error.cause, f"The whole log is in {shown(log)}"]))
                raise ExportError(f"{request.name}: {error.what}", cause, error.hint, error.names) from error
            write_json(folder / DESCRIPTION, program.model_dump(mode="json"))
    _say(program, request.folder)
    _forget()
    return request.folder


def export(
    model: str,
    scheme: str = "fp32",
    *,
    partitioners: Sequence[str] = (),
    options: Options | Mapping[str, Any] | None = None,
    force: bool = False,
    out: Path | None = None,
    host: Host | None = None,
    format: str = "pte",  # noqa: A002  # the command line's word
) -> Path:
    """Export ``model`` in ``scheme``, unless the existing export is current.

    Args:
        model: a name of the zoo, or ``path/to/file.py:function`` (docs/models.md).
        partitioners: ``xnnpack``, the default, or the user's, in priority order; ``("none",)``: no delegate.
        options: `models.request.options.Options`, or a mapping of its fields.
        force: export even when nothing has changed.
        out: the folder for the program's own folder; ``dist/programs`` when not given.
        host: runs the reference; for callers that export often and keep one running.
        format: ``pte`` or ``onnx``.

    Returns:
        The folder: ``model.pte`` and ``model.etrecord``, or ``model.onnx``; ``inputN.npy``, ``outputN.npy``,
        ``program.json``.

    Raises:
        ConfigError: an unknown name, or a senseless combination.
        ExportError: the model cannot be exported.
        HostError: no space, or a partitioner that does not work on this machine.
    """
    request = resolve(model, scheme, partitioners=partitioners, options=options, out=out, format=format)
    if host is not None:
        return export_request(request, force, host)
    with Host(log_path("host"), format) as own:
        return export_request(request, force, own)


def failed(name: str, error: SlipwayError) -> str:
    """``mlp-qs8: failed: torch.export of the model failed.``, with the name once."""
    return f"{name}: failed: {error.what.removeprefix(f'{name}: ')}"


def raise_failures(failures: Mapping[str, SlipwayError], count: int) -> None:
    """Raise the only failure of ``count`` exports, or one error that lists all of them; nothing if there is none."""
    if len(failures) == 1:
        raise next(iter(failures.values()))
    if failures:
        raise ExportError(
            f"{len(failures)} of {count} exports failed.",
            "\n".join(
                f"{name}: {error.what.removeprefix(f'{name}: ')} {error.cause}" for name, error in failures.items()
            ),
            "export one alone to see all of its message",
            list(failures),
        )


def attempt(requests: Sequence[Request], force: bool) -> dict[str, SlipwayError]:
    """Export several; the failures by the requests' names. With several, each is noted when it happens."""
    failures: dict[str, SlipwayError] = {}
    with contextlib.ExitStack() as stack:
        hosts: dict[str, Host] = {}  # by the programs' format: a runtime reads one
        for request in requests:
            try:
                if request.format not in hosts:
                    hosts[request.format] = stack.enter_context(Host(log_path("host"), request.format))
                export_request(request, force, hosts[request.format])
            except SlipwayError as error:  # noqa: PERF203  # one failure does not stop the others
                failures[request.name] = error
                if len(requests) > 1:
                    note(failed(request.name, error))
    return failures
