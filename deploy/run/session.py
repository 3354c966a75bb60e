"""One attempt at a deploy, over one connection: from the probe to the written result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from core.console.units import amount, counted
from core.errors import CrashError, TransferError
from core.files import locked, new_folder
from core.formats.bundle import Bundle, runner_in
from core.paths import results_dir
from deploy.devices import conditions
from deploy.devices.conditions import Conditions
from deploy.devices.facts import DeviceFacts
from deploy.devices.inventory import Device
from deploy.devices.probe import device_root, probe
from deploy.run import collect, generate, preflight, result, runner
from deploy.run.compare import Comparison
from deploy.run.connect import machine_of
from deploy.run.events import Step, Steps
from deploy.run.job import Job, Sized, cache_name
from deploy.run.needs import ProgramNeeds, bundle_digest
from deploy.run.preflight import Finding
from deploy.run.result import BundleUsed, ProgramUsed, Result, Upload, Verified
from deploy.run.settings import ONCE, Settings
from deploy.store import gc
from deploy.store.store import Blob, Store, Survey
from deploy.store.vouch import Records, Voucher
from deploy.transport import hearing
from deploy.transport.base import Transport, run
from deploy.transport.deadline import Deadline

_NOTHING = Survey()
_SMALL = 256 << 10
"""Bytes of results that come with the run's end; larger ones are fetched."""
_PATIENCE = 2.0
"""Seconds after which taking the lock counts as waiting for another session."""


class Session:
    """One deploy over one connection."""

    def __init__(
        self,
        device: Device,
        bundle: Bundle,
        job: Job,
        needs: ProgramNeeds,
        steps: Steps,
        deadline: Deadline,
        transport: Transport,
    ) -> None:
        self.device, self.bundle, self.job, self.needs = device, bundle, job, needs
        self.steps, self.deadline, self.transport = steps, deadline, transport
        self.conditions = Conditions()
        self.sent: dict[str, bytes] = {}
        """The files that came with the run's end."""
        self.key = result.result_key(device.name, job.name, bundle.manifest.engine)
        self.digest = bundle_digest(bundle)
        self.home = f"bundles/{self.digest}"
        self.program = f"programs/{job.digest}"
        self.replaced: tuple[str, ...] = ()
        self.moved: dict[str, Blob] = {}
        """The uploaded files, by SHA-256."""
        self.cache = ""
        """The file of packed weights, below the root; empty: none for this run."""
        self.machine = machine_of(device, bundle.manifest.target)
        # Licences stay on this machine, with the person who distributes the bundle.
        self.parts = {
            entry.path: Blob(bundle.path / entry.path, entry.sha256, entry.size, entry.executable)
            for entry in bundle.manifest.files
            if entry.path.startswith(("bin/", "lib/"))
        }

    def go(self, settings: Settings, attempts: int = 1) -> Result:
        """From the probe to the written result; ``attempts`` counts this deploy's connections from 1."""
        with Store(self.transport, device_root(self.device)) as store:
            facts, found, survey, voucher = self.arrive(store, settings)
            upload, answer = self._sound_run(store, voucher, survey, self._missing(survey), settings)
            verified = Verified(
                program=voucher.vouched(self.job.files), bundle=voucher.vouched(self.parts), replaced=self.replaced
            )
            with self.steps.step("settle"):
                self._settle(store, survey, grown=upload.bytes > 0)
            outputs, files = self._outputs(answer, settings, store.run_folder, partial(self._run, store))
        return self._written(attempts, facts, found, upload, verified, answer, outputs, files)

    def _outputs(
        self,
        answer: runner.RunnerResult,
        settings: Settings,
        there: str,
        again: Callable[[Settings, Sized], runner.RunnerResult],
    ) -> tuple[tuple[Comparison, ...], tuple[str, ...]]:
        """Fetch and compare the outputs, then those at other sizes and of other methods; and the files that are kept.

        The run's folder is ``there``; ``again`` runs another case. Conditions and times stay those of the run itself.
        """
        with locked(f"result-{self.key}"), new_folder(results_dir() / self.key) as folder:
            with self.steps.step("fetch", "fetching the outputs"):
                kept = ((runner.ETDUMP, settings.etdump), (runner.VALUES, settings.values))
                files = self.fetch(there, answer, folder, [name for name, asked in kept if asked])
            with self.steps.step("compare"):
                outputs = collect.compare_all(answer, folder, self.job)
        before, once = self.conditions, settings.model_copy(update=ONCE)
        others, self.methods = collect.compared(
            self.job.cases, lambda case: again(once, case), lambda said, to: self.fetch(there, said, to)
        )
        self.conditions = before
        return outputs + others, tuple(f"{self.key}/{name}" for name in files)

    def fetch(self, there: str, answer: runner.RunnerResult, folder: Path, more: Sequence[str] = ()) -> list[str]:
        """`collect.fetch` of this session."""
        return collect.fetch(self.transport, there, answer, self.sent, folder, self.deadline, more)

    def arrive(self, store: Store, settings: Settings) -> tuple[DeviceFacts, list[Finding], Survey, Voucher]:
        """Probe, lock and check the device: everything before the upload."""
        facts, survey = self._ask(store, settings)
        voucher = Voucher(store, self.device.verify_days, Records.of(store.lock.id))
        if survey is not None:
            facts = self._make_room(store, survey, facts)
            survey = self._verified(store, voucher, survey)
        with self.steps.step("preflight") as step:
            found = self._preflight(facts, self._missing(survey or _NOTHING), step)
        self.cache = cache_name(settings, self.device, self.bundle, facts, self.job.model)
        if survey is None:  # a new device: nothing was touched on it before this line
            survey = self._open(store, settings, make=True) or _NOTHING
            voucher.records = Records.of(store.lock.id)
            survey = self._verified(store, voucher, survey)
        return facts, found, survey, voucher

    def _ask(self, store: Store, settings: Settings) -> tuple[DeviceFacts, Survey | None]:
        """Probe, lock and survey the device; usually in one round trip."""
        with self.steps.step("probe", "probing the device"):
            facts, kind, survey = store.ask(self._folders(), self.bundle.manifest.needs, self.deadline)
            facts = self.machine.facts(facts, self.bundle.manifest.needs)
        if kind == "busy":
            return facts, self._open(store, settings, make=False)
        if survey is None or all(self._has_folder(survey, folder) for folder in self._files()):
            return facts, survey
        with self.steps.step("survey"):
            parts = store.survey([f"store/{blob.sha256}" for blob in self._blobs()], self.deadline)
        return facts, replace(survey, looks={**survey.looks, **parts.looks})

    def _verified(self, store: Store, voucher: Voucher, survey: Survey) -> Survey:
        """The survey without damaged files: files that changed since their verification are verified again."""
        there = {f"{folder}/{path}": blob for folder, files in self._files().items() for path, blob in files.items()}
        there |= {f"store/{blob.sha256}": blob for blob in self._blobs()}
        unknown = voucher.unknown(survey.looks, there)
        if not unknown:
            return survey
        with self.steps.step("verify", f"verifying {counted(len(unknown), 'file')} on {self.device.name}") as step:
            damaged = voucher.verify(unknown, self.deadline)
            voucher.records.save()
            bad = {there[name].sha256 for name in damaged}
            if not bad:
                return survey
            names = {blob.sha256: blob.source.name for blob in there.values()}
            self.replaced = (*self.replaced, *(names[sha256] for sha256 in sorted(bad)))
            for name, digest in damaged.items():
                step.note(
                    f"{names[there[name].sha256]} was damaged on {self.device.name} ({name.partition('/')[0]}): its "
                    f"SHA-256 is {digest[:16]}…, not {there[name].sha256[:16]}…; it is uploaded again"
                )
            # The store's own copy was not checked if all links were there.
            more = store.survey([f"store/{blob.sha256}" for blob in self._blobs()], self.deadline)
        looks = {name: look for name, look in {**survey.looks, **more.looks}.items()
                 if name not in there or there[name].sha256 not in bad}  # fmt: skip
        return self._verified(store, voucher, replace(survey, looks=looks))

    def _open(self, store: Store, settings: Settings, make: bool) -> Survey | None:
        """Lock and survey the device; waiting for another deploy does not use up this one's time."""
        with self.steps.step("survey", f"listing the files on {self.device.name}") as step:
            begun = time.monotonic()
            patience = Deadline.after(settings.wait + self.deadline.left())

            def waiting(who: str) -> None:
                by = who or "another deploy"
                step.note(f"{self.device.name} is in use by {by}: waiting up to {settings.wait:.0f} s")

            names = [*self._folders(), *(f"store/{blob.sha256}" for blob in self._blobs())]
            survey = store.open(names, patience, wait=settings.wait, make=make, waiting=waiting)
            waited = time.monotonic() - begun
        if waited > _PATIENCE:
            self.deadline = self.deadline.later(waited)
        return survey

    def _make_room(self, store: Store, survey: Survey, facts: DeviceFacts) -> DeviceFacts:
        """Remove dead sessions' files, except parts of missing files, and old files if space is short."""
        missing = self._missing(survey)
        resumable = tuple(f"incoming/{blob.sha256}." for blob in missing)
        stale = [name for name in survey.stale if not name.startswith(resumable or ("\0",))]
        store.discard(stale, self.deadline)
        need = preflight.space_needed(sum(blob.size for blob in missing), self.job.output_bytes)
        short = facts.free is not None and facts.free < need
        if short:
            limit = max(0, store.survey([], self.deadline).usage - (need - (facts.free or 0)))
            self._collect(store, limit)
        if short or stale:  # what was removed is free space now
            needs = self.bundle.manifest.needs
            facts = self.machine.facts(probe(self.transport, device_root(self.device), needs, self.deadline), needs)
        return facts

    def _collect(self, store: Store, max_bytes: float) -> None:
        in_use = {self.digest, self.job.digest, *(blob.sha256 for blob in self._blobs())}
        days = self.device.store_days
        gc.collect(store, self.deadline, max_bytes=max_bytes, max_days=days, in_use=in_use)

    def _settle(self, store: Store, survey: Survey, grown: bool) -> None:
        """After a good run: make the bundle the current one, and shrink a store that grew above its limits."""
        key = f"{self.bundle.manifest.target}-{self.bundle.manifest.engine}"
        if survey.current.get(key) != self.digest:
            store.lock.check()
            store.flip(key, self.digest, self.deadline)
        if grown:
            self._collect(store, self.device.store_gib * (1 << 30))

    def _files(self) -> dict[str, dict[str, Blob]]:
        """Folder on the device to the files it must hold."""
        return {self.home: self.parts, self.program: self.job.files}

    def _blobs(self) -> list[Blob]:
        return [blob for files in self._files().values() for blob in files.values()]

    def _folders(self) -> list[str]:
        """Those of the bundle and the program, each with a slash."""
        paths = (f"{folder}/{path}" for folder, files in self._files().items() for path in files)
        return list(dict.fromkeys(path.rpartition("/")[0] + "/" for path in paths))

    def _has_folder(self, survey: Survey, folder: str) -> bool:
        """Whether the device has all files of ``folder`` already."""
        return all(survey.has(f"{folder}/{path}", blob) for path, blob in self._files()[folder].items())

    def _missing(self, survey: Survey) -> list[Blob]:
        """The files to upload."""
        needed = [
            blob for folder, files in self._files().items() if not self._has_folder(survey, folder)
            for blob in files.values()
        ]  # fmt: skip
        missing = {blob.sha256: blob for blob in needed if not survey.has(f"store/{blob.sha256}", blob)}
        return list(missing.values())

    def _preflight(self, facts: DeviceFacts, missing: Sequence[Blob], step: Step) -> list[Finding]:
        found = preflight.check(
            self.bundle, facts, self.needs, self.job.method,
            upload_bytes=sum(blob.size for blob in missing),
            program_bytes=self.job.model.size + sum(blob.size for blob in self.job.data.values()),
            output_bytes=self.job.output_bytes,
        )  # fmt: skip
        step.show(found)
        error = preflight.failure(found, self.device, self.bundle)
        if error is not None:
            raise error
        return found

    def _upload(self, store: Store, voucher: Voucher, survey: Survey, missing: Sequence[Blob]) -> Upload:
        total = sum(blob.size for blob in missing)
        everything = {blob.sha256: blob.size for blob in self._blobs()}
        self.moved |= {blob.sha256: blob for blob in missing}
        present = {digest: size for digest, size in everything.items() if digest not in self.moved}
        text = f"uploading {counted(len(missing), 'file')} to {self.device.name}" if missing else ""
        with self.steps.step("upload", text) as step:
            resumed = store.upload(missing, step.counter(total), self.deadline)
            for blob in missing:
                voucher.by_device(blob)
            for folder, files in self._files().items():
                if not self._has_folder(survey, folder):
                    self._arrange(store, voucher, folder, files)
            step.outcome = (
                f"uploaded {counted(len(missing), 'file')}, {amount(total)}"
                + (f" ({amount(resumed)} of it earlier)" if resumed else "")
                if missing
                else f"nothing to upload: 0 bytes of payload, {amount(sum(present.values()))} were there"
            )
        return Upload(
            files=len(missing),
            bytes=total,
            names=tuple(blob.source.name for blob in missing),
            present_files=len(present),
            present_bytes=sum(present.values()),
            resumed_bytes=resumed,
        )

    def _arrange(self, store: Store, voucher: Voucher, folder: str, files: dict[str, Blob]) -> None:
        looks = store.arrange(folder, files, self.deadline)
        copies = voucher.arranged(looks, {f"{folder}/{path}": blob for path, blob in files.items()})
        if copies and (damaged := voucher.verify(copies, self.deadline)):
            raise TransferError(
                f"{', '.join(damaged)} on {self.device.name} is not what was uploaded.",
                "its file system has no hard links, and a copy of the file came out damaged",
                "the same command again, or another root in devices.toml",
                tuple(damaged),
            )
        voucher.records.save()

    def _argv(self, settings: Settings, case: Sized, program: str, above: str, cache: Sequence[str] = ()) -> list[str]:
        """The command of the runner ``program``, to be run inside the run's folder.

        From there ``above`` leads to the folder of the program and its inputs, with a slash; empty: the same.
        """
        job, text = self.job, settings.text
        executions, warmup = settings.executions()
        inputs = [f"{above}{name}" for name in case.inputs]
        argv = [
            program,
            f"--model_path={above}{job.model_name}",
            f"--json={runner.RESULT}",
            f"--output_file={runner.OUTPUT}",
            f"--method_name={case.method or job.method}",
            f"--num_executions={executions}",
            f"--warmup={warmup}",
        ]
        given = {
            "data_path": job.data_name and f"{above}{job.data_name}", "prompt": inputs[0] if text else "",
            "inputs": "" if text else ",".join(inputs), "input_shapes": job.shapes,
            "cpu_threads": settings.threads, "etdump_path": runner.ETDUMP if settings.etdump else "",
            "dump_intermediate": runner.VALUES if settings.values else "",
        }  # fmt: skip
        argv += [f"--{name}={value}" for name, value in given.items() if value]
        for name, files in case.first:
            own = ",".join(f"{above}{file}" for file in files)
            argv.append(f"--run_first={name}={own}" if own else f"--run_first={name}")
        return [*argv, *settings.engine_flags, *settings.limits, *cache, *(text.flags if text else ())]

    def _run(self, store: Store, settings: Settings, case: Sized) -> runner.RunnerResult:
        cache = [f"--weights_cache={store.path(self.cache)}"] if self.cache else []
        program = store.path(f"{self.home}/{runner_in(self.bundle.path)}")
        argv = self._argv(settings, case, program, f"../../{self.program}/", cache)
        argv = self.machine.argv(argv, store.root, store.run_folder, self.bundle.manifest.needs)
        cooled, name = 0.0, self.device.name
        if settings.cooldown:
            with self.steps.step("cool down", f"waiting for {name} to cool down") as step:
                cooled = conditions.cool_down(self.transport, name, settings.cooldown, step.note, self.deadline)
        with self.steps.step("run", f"running {self.job.name} on {self.device.name}") as step:
            store.lock.check()
            files = conditions.Files(store.path(self.program), store.owner, _SMALL)
            done = run(
                self.transport,
                conditions.wrapped(argv, settings.cpu_affinity, files),
                cwd=store.run_folder,
                pidfile=store.pidfile,
                deadline=self.deadline,
                doing=f"running {self.job.name} on {self.device.name}",
                check=False,
                most=hearing.RUN,
                hear=generate.hearing(self.transport, store.run_folder, settings.text, self.steps.tell, self.deadline),
            )
            self.sent = files.brought(done.stdout)
            said = collect.read_result(self.transport, store.run_folder, self.sent, self.deadline)
            if done.code != 0:
                raise runner.failure(
                    done.code, done.stderr.decode(errors="replace"), runner.error_in(said), self.device.name
                )
            self.conditions = conditions.conditions(done.text, settings.cpu_affinity, cooled)
            for line in self.conditions.notes:
                step.note(line)
            return runner.parse_result(said)

    def _sound_run(
        self, store: Store, voucher: Voucher, survey: Survey, missing: Sequence[Blob], settings: Settings
    ) -> tuple[Upload, runner.RunnerResult]:
        """Upload and run. A damaged byte can make a run fail in any way: after a failure all evidence is forgotten."""
        upload = self._upload(store, voucher, survey, missing)
        try:
            answer = self._run(store, settings, self.job)
            same = collect.check_read(answer, self.job, self.device.name)
        except collect.MAY_BE_DAMAGE as error:
            for blob in self._blobs():
                voucher.records.forget(blob.sha256)
            voucher.records.save()
            if self.cache and isinstance(error, CrashError):  # nobody knows the digest of packed weights
                store.discard([self.cache], self.deadline)
            raise
        for name in same:
            voucher.by_runner(self.job.files[name])
        return upload, answer

    def _written(
        self,
        attempts: int,
        facts: DeviceFacts,
        found: Sequence[Finding],
        upload: Upload,
        verified: Verified,
        answer: runner.RunnerResult,
        outputs: tuple[Comparison, ...],
        files: tuple[str, ...],
    ) -> Result:
        device, manifest, job, program = self.device, self.bundle.manifest, self.job, self.job.program
        written = Result(
            created=result.now(), attempts=attempts,
            device=device.name, title=device.title, transport=device.transport, emulated=device.emulated,
            latency_note=result.EMULATED if device.emulated else "", facts=facts,
            bundle=BundleUsed(
                target=manifest.target, engine=manifest.engine, engine_version=manifest.offers.engine_version,
                toolchain=manifest.toolchain, digest=self.digest,
            ),
            program=ProgramUsed(
                name=job.name, file=job.model.source.name, size=job.model.size, sha256=job.model.sha256,
                model=program.model if program else "", scheme=program.scheme if program else "", method=job.method,
                reference_engine=job.reference_engine, state=program.state if program else (), execution=job.execution,
            ),
            preflight=tuple(found),
            upload=upload, verified=verified, runner=answer, conditions=self.conditions, methods=self.methods,
            outputs=outputs, verdict=result.overall(outputs), seconds=dict(self.steps.seconds), files=files,
            **collect.seen(job, results_dir() / self.key, outputs),
        )  # fmt: skip
        return written.model_copy(update={"path": result.write(written)})
