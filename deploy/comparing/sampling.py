"""Give samples to a program on a device: one connection and one upload for all of them, a process for each."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import TransferError, UsageError
from core.files import sha256_file
from core.formats.bundle import Bundle
from core.formats.program import Program, Sample, load_program
from deploy.devices.inventory import Device
from deploy.devices.roots import device_root
from deploy.run import collect
from deploy.run.attempts import connected
from deploy.run.compare import digest
from deploy.run.events import Steps
from deploy.run.job import Job, Sized, load_job
from deploy.run.needs import describe
from deploy.run.npy import BFLOAT16, load
from deploy.run.session import Session
from deploy.run.settings import ONCE, Settings
from deploy.store.store import Blob, Store

_PATIENCE = 10
"""Samples for which the device's own timeout is enough."""


def widened(file: Path) -> Any:
    """The numbers in a ``.npy`` file; bfloat16 as float32."""
    dtype, array = load(file)
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == BFLOAT16 else array


def fitted(file: Path, dtype: str, folder: Path) -> Path:
    """An input in the type that the program takes: the file itself, or another one in ``folder``.

    Raises:
        UsageError: no such conversion.
    """
    has, array = load(file)
    if has == dtype:
        return file
    made = folder / file.name
    values = widened(file)
    if dtype == BFLOAT16 and values.dtype.kind == "f":
        bits = values.astype(np.float32).view(np.uint32)
        np.save(made, ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).view("V2"), allow_pickle=False)
    elif dtype.startswith("float") and array.dtype.kind in "fu":
        with np.errstate(over="ignore"):  # infinite, as in PyTorch
            np.save(made, values.astype(dtype), allow_pickle=False)
    else:
        raise UsageError(f"A sample is {has}, the program takes {dtype}.", "", "samples like the example inputs")
    return made


class _Sampling(Session):
    """A session that runs a program on many inputs."""

    def all_of(
        self, settings: Settings, inputs: Sequence[Sequence[str]], found: dict[int, list[Any]], done: Callable[[], None]
    ) -> None:
        """Run those that are not in ``found`` yet.

        Args:
            inputs: for each sample the names of its inputs among the job's files.
            found: outputs by the sample's number; they stay there if the connection breaks.
            done: called after each.
        """
        digests = {name: digest(load(blob.source)[1]) for name, blob in self.job.data.items() if name.endswith(".npy")}
        with Store(self.transport, device_root(self.device)) as store, self._tidy(store, settings):
            _, _, survey, voucher = self.arrive(store, settings)
            self._upload(store, voucher, survey, self._missing(survey))
            for number, names in enumerate(inputs):
                if number in found:
                    continue
                sample = Sized("sample", {name: self.job.data[name] for name in names}, (), ())
                answer = self._run(store, settings, sample)
                if [one.sha256 for one in answer.inputs] != [digests[name] for name in names]:
                    raise TransferError(
                        f"The runner on {self.device.name} read other inputs than were uploaded.",
                        "its disk or its memory is damaged",
                        f"./inv devices.verify {self.device.name}",
                    )
                with tempfile.TemporaryDirectory() as folder:
                    what = (self.transport, store, answer, self.sent, Path(folder), False, self.deadline)
                    found[number] = [widened(Path(folder) / name) for name in collect.fetch(*what)]
                done()


def run(
    device: Device,
    bundle: Bundle,
    path: Path,
    samples: Sequence[Sample],
    settings: Settings,
    done: Callable[[], None] = lambda: None,
) -> list[list[Any]]:
    """The outputs of a program for each sample, in order.

    Args:
        path: the export's folder.
        done: called after each sample.

    Raises:
        SlipwayError: of the class that names the failure; see ``docs/deploy.md``.
    """
    settings = settings.model_copy(update=ONCE)
    program = load_program(path)
    steps = Steps([])
    found: dict[int, list[Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        names, files = _files(program, samples, Path(folder))
        job = replace(load_job(path, program, settings), cases=())
        needs = describe(bundle, job.model.source, job.model.sha256)
        job = _with(job.with_data(needs.program.data_files), files)
        seconds = (settings.timeout or device.timeout) * max(1, len(samples) / _PATIENCE)
        connected(
            device,
            seconds,
            settings.retries,
            steps,
            lambda deadline, transport: _Sampling(device, bundle, job, needs, steps, deadline, transport),
            lambda session, _attempt: session.all_of(settings, names, found, done),
            wait=settings.wait,
        )
    return [found[number] for number in range(len(samples))]


def _files(program: Program, samples: Sequence[Sample], folder: Path) -> tuple[list[list[str]], dict[str, Blob]]:
    """The names of each sample's inputs on the device, and the files of all."""
    names: list[list[str]] = []
    files: dict[str, Blob] = {}
    for sample in samples:
        own = []
        for file, wanted in zip(sample.inputs, program.inputs, strict=True):
            made = fitted(file, wanted.dtype, folder)
            files[file.name] = Blob(made.resolve(), sha256_file(made), made.stat().st_size)
            own.append(file.name)
        names.append(own)
    return names, files


def _with(job: Job, files: Mapping[str, Blob]) -> Job:
    return replace(job, data={**job.data, **files})
