"""One attempt at a deploy, over one connection: from the probe to the written result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from core.bundle import RUNNER, Bundle
from core.errors import DeadlineError, SlipwayError
from core.files import locked, new_folder
from core.paths import results_dir
from deploy import collect, conditions, gc, hearing, preflight, runner
from deploy.compare import Comparison
from deploy.conditions import Conditions
from deploy.deadline import Deadline
from deploy.events import Step, Steps
from deploy.facts import DeviceFacts
from deploy.inventory import Device
from deploy.job import Job
from deploy.needs import ProgramNeeds, bundle_digest
from deploy.preflight import Finding
from deploy.probe import probe
from deploy.result import EMULATED, BundleUsed, ProgramUsed, Result, Upload, now, overall, result_key, write
from deploy.store import Blob, Store, Survey, trouble
from deploy.transport import Transport, run

_CLEANUP = 20.0
"""Seconds for tidying up on the device."""
_DEFAULT_ROOT = ".slipway"
_NOTHING = Survey({})
_SMALL = 256 << 10
"""Bytes of results that come with the run's end; what is larger is fetched."""
_AT_ONCE = 20
"""Files that a run's own command puts in their place; more are put there before."""
_COOLING = 2.0
"""Seconds between two looks at the temperature."""
_PATIENCE = 2.0
"""Seconds that taking the lock may last before it counts as waiting for somebody."""


def device_root(device: Device) -> str:
    """Where ``device`` keeps Slipway's files: the inventory's ``root``, or the place its transport has for that."""
    if device.root:
        return device.root
    if device.transport == "local":
        from core.paths import cache_dir

        return str(cache_dir("devices", device.name))
    if device.transport == "adb":
        from deploy.adb import HOME

        return f"{HOME}/slipway"
    return _DEFAULT_ROOT


@dataclass(frozen=True)
class Options:
    """How to run."""

    executions: int = 10
    warmup: int = 1
    threads: int = 0
    etdump: bool = False
    keep_run: bool = False
    wait: float = 300.0
    """Seconds to wait for a device that another deploy uses."""
    engine_flags: tuple[str, ...] = ()
    """The runner's, of those that only some engines have."""
    governor: str = ""
    """CPU frequency governor for the run, set back afterwards."""
    cores: str = ""
    """Cores to keep the run to, ``0,2-3``."""
    cooldown: float = 0.0
    """Degrees Celsius to which the device may cool down first; 0 for any."""


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
        """What came with the run's end."""
        self.digest = bundle_digest(bundle)
        self.home = f"bundles/{self.digest}"
        self.parts = {
            entry.path: Blob(bundle.path / entry.path, entry.sha256, entry.size, entry.executable)
            for entry in bundle.manifest.files
            if entry.path.startswith(("bin/", "lib/"))  # licences stay with whoever distributes the bundle
        }

    def go(self, options: Options, attempts: int = 1) -> Result:
        """From the probe to the written result.

        Args:
            attempts: which connection of this deploy it is, counted from 1.
        """
        with Store(self.transport, device_root(self.device)) as store, self._tidy(store, options):
            facts, survey = self._ask(store, options)
            if survey is not None:
                facts = self._make_room(store, survey, facts)
            missing, placed = self._missing(survey or _NOTHING)
            with self.steps.step("preflight") as step:
                found = self._preflight(facts, missing, step)
            if survey is None:  # a device that is new to us, and nothing touched on it before this line
                survey = self._open(store, options, make=True) or _NOTHING
                missing, placed = self._missing(survey)
            upload = self._upload(store, missing, placed)
            answer = self._run(store, options)
            with self.steps.step("settle"):
                self._settle(store, survey, grown=upload.bytes > 0)
            key = result_key(self.device.name, self.job.name, self.bundle.manifest.engine)
            with locked(f"result-{key}"), new_folder(results_dir() / key) as folder:
                with self.steps.step("fetch", "fetching the outputs"):
                    files = collect.fetch(
                        self.transport, store, answer, self.sent, folder, options.etdump, self.deadline
                    )
                with self.steps.step("compare"):
                    outputs = collect.compare_all(answer, folder, self.job.references, self.job.tolerances)
        result = self._result(facts, found, upload, answer, outputs, tuple(f"{key}/{name}" for name in files))
        result = result.model_copy(update={"attempts": attempts})
        return result.model_copy(update={"path": write(result)})

    def _probe(self) -> DeviceFacts:
        return probe(self.transport, device_root(self.device), self.bundle.manifest.needs, self.deadline)

    def _ask(self, store: Store, options: Options) -> tuple[DeviceFacts, Survey | None]:
        """What the device is and what is there, the lock with it; one round trip, if everything is as it mostly is."""
        with self.steps.step("probe", "asking the device what it is"):
            names = [*self._folders(), *(f"store/{blob.sha256}" for blob in self.job.files.values())]
            facts, kind, survey = store.ask(names, self.bundle.manifest.needs, self.deadline)
        if kind == "busy":
            return facts, self._open(store, options, make=False)
        if survey is None or self._placed(survey):
            return facts, survey
        with self.steps.step("survey"):
            parts = store.survey([f"store/{blob.sha256}" for blob in self.parts.values()], self.deadline)
        return facts, replace(survey, sizes={**survey.sizes, **parts.sizes})

    def _open(self, store: Store, options: Options, make: bool) -> Survey | None:
        """Lock the device and see what is there; waiting for another deploy does not use up this one's time."""
        with self.steps.step("survey", f"looking at what is on {self.device.name}") as step:
            begun = time.monotonic()
            patience = Deadline.after(options.wait + self.deadline.left())

            def waiting(who: str) -> None:
                by = who or "another deploy"
                step.note(f"{self.device.name} is in use by {by}: waiting up to {options.wait:.0f} s")

            survey = store.open(self._names(), patience, wait=options.wait, make=make, waiting=waiting)
            waited = time.monotonic() - begun
        if waited > _PATIENCE:
            self.deadline = self.deadline.later(waited)
        return survey

    def _make_room(self, store: Store, survey: Survey, facts: DeviceFacts) -> DeviceFacts:
        """Remove what dead sessions left, but for parts of what is missing, and old files when space is short."""
        missing, _ = self._missing(survey)
        wanted = tuple(f"incoming/{blob.sha256}." for blob in missing)
        stale = [name for name in survey.stale if not name.startswith(wanted or ("\0",))]
        store.discard(stale, self.deadline)
        if survey.pinned:
            words = ["sh", "-c", conditions.UNPIN, "slipway", store.path("governor")]
            run(self.transport, words, deadline=self.deadline, check=False)
        need = preflight.space_needed(sum(blob.size for blob in missing))
        short = facts.free is not None and facts.free < need
        if short:
            limit = max(0, store.survey([], self.deadline).usage - (need - (facts.free or 0)))
            gc.collect(
                self.transport, store, self.deadline,
                max_bytes=limit, max_days=self.device.store_days, in_use=self._in_use(),
            )  # fmt: skip
        return self._probe() if short or stale else facts  # what was removed is free space now

    def _in_use(self) -> set[str]:
        return {self.digest, *(blob.sha256 for blob in (*self.parts.values(), *self.job.files.values()))}

    def _settle(self, store: Store, survey: Survey, grown: bool) -> None:
        """After a good run: the bundle becomes the current one, and a store that grew is held to its limits."""
        key = f"{self.bundle.manifest.target}-{self.bundle.manifest.engine}"
        if survey.current.get(key) != self.digest:
            store.lock.check()
            store.flip(key, self.digest, self.deadline)
        if grown:
            gc.collect(
                self.transport, store, self.deadline,
                max_bytes=self.device.store_gib * (1 << 30), max_days=self.device.store_days, in_use=self._in_use(),
            )  # fmt: skip

    @contextlib.contextmanager
    def _tidy(self, store: Store, options: Options) -> Iterator[None]:
        """After a failure remove every unfinished file; the run's folder goes with the lock."""
        try:
            yield
        except BaseException as error:
            # A transfer for which the time did not suffice goes on from here the next time.
            store.abandon(Deadline.after(_CLEANUP), parts=not isinstance(error, DeadlineError))
            raise
        if options.keep_run:
            with contextlib.suppress(SlipwayError):  # the result is here
                store.keep(Deadline.after(_CLEANUP))

    def _folders(self) -> list[str]:
        """Those of the bundle in its place, each with a slash."""
        return list(dict.fromkeys(f"{self.home}/{path}".rpartition("/")[0] + "/" for path in self.parts))

    def _names(self) -> list[str]:
        blobs = (*self.parts.values(), *self.job.files.values())
        return [*self._folders(), *(f"store/{blob.sha256}" for blob in blobs)]

    def _placed(self, survey: Survey) -> bool:
        """Whether the bundle is in its place already."""
        return all(survey.sizes.get(f"{self.home}/{path}") == blob.size for path, blob in self.parts.items())

    def _missing(self, survey: Survey) -> tuple[list[Blob], bool]:
        """What must be uploaded, and whether the bundle is in its place already."""
        placed = self._placed(survey)
        wanted = [*([] if placed else self.parts.values()), *self.job.files.values()]
        missing = {blob.sha256: blob for blob in wanted if survey.sizes.get(f"store/{blob.sha256}") != blob.size}
        return list(missing.values()), placed

    def _preflight(self, facts: DeviceFacts, missing: Sequence[Blob], step: Step) -> list[Finding]:
        found = preflight.check(
            self.bundle,
            facts,
            self.needs,
            self.job.method,
            upload_bytes=sum(blob.size for blob in missing),
            program_bytes=self.job.model.size + sum(blob.size for blob in self.job.data.values()),
            versions=self.job.program.versions if self.job.program else {},
        )
        step.show(found)
        error = preflight.failure(found, self.device, self.bundle)
        if error is not None:
            raise error
        return found

    def _upload(self, store: Store, missing: Sequence[Blob], placed: bool) -> Upload:
        total, resumed = sum(blob.size for blob in missing), 0
        everything = {blob.sha256: blob.size for blob in (*self.parts.values(), *self.job.files.values())}
        present = {
            digest: size for digest, size in everything.items() if digest not in {blob.sha256 for blob in missing}
        }
        text = f"uploading {preflight.files(len(missing))} to {self.device.name}" if missing else ""
        with self.steps.step("upload", text) as step:
            done = 0

            def progress(count: int) -> None:
                nonlocal done
                done += count
                step.progress(done, total)

            if missing:
                resumed = store.upload(missing, progress, self.deadline)
            if not placed:
                store.arrange(self.home, self.parts, self.deadline)
            step.outcome = (
                f"uploaded {preflight.files(len(missing))}, {preflight.size(total)}"
                + (f" ({preflight.size(resumed)} of it earlier)" if resumed else "")
                if missing
                else f"nothing to upload: 0 bytes of payload, {preflight.size(sum(present.values()))} were there"
            )
        return Upload(
            files=len(missing),
            bytes=total,
            names=tuple(blob.source.name for blob in missing),
            present_files=len(present),
            present_bytes=sum(present.values()),
            resumed_bytes=resumed,
        )

    def _run(self, store: Store, options: Options) -> runner.RunnerResult:
        argv = runner.command(
            store.path(f"{self.home}/{RUNNER}"),
            model=self.job.model_name,
            inputs=self.job.input_names,
            shapes=self.job.shapes,
            method=self.job.method,
            executions=options.executions,
            warmup=options.warmup,
            threads=options.threads,
            etdump=options.etdump,
            engine_flags=options.engine_flags,
        )
        note = store.path("governor")
        cooled = self._cool_down(options.cooldown) if options.cooldown else 0.0
        with self.steps.step("run", f"running {self.job.name} on {self.device.name}") as step:
            store.lock.check()
            files = self._files(store)
            done = run(
                self.transport,
                conditions.wrapped(argv, note, options.governor, options.cores, files),
                cwd=store.run_folder,
                pidfile=store.pidfile,
                deadline=self.deadline,
                doing=f"running {self.job.name} on {self.device.name}",
                check=False,
                most=hearing.RUN,
            )
            if done.code != 0 and not files.were_placed(done.stdout):
                raise trouble(self.device.name, "arranging the run", store.root, done)
            self.sent = files.brought(done.stdout)
            said = collect.read_result(self.transport, store, self.sent, self.deadline)
            if done.code != 0:
                raise runner.failure(
                    done.code, done.stderr.decode(errors="replace"), runner.error_in(said), self.device.name
                )
            self.conditions = conditions.conditions(done.text, options.governor, options.cores, cooled)
            for line in self.conditions.notes:
                step.note(line)
            return runner.parse_result(said)

    def _files(self, store: Store) -> conditions.Files:
        """The program and its inputs, from the store."""
        placed = tuple((blob.sha256, name, blob.mode) for name, blob in self.job.files.items())
        if len(placed) > _AT_ONCE:  # one command would be too long for dropbear
            store.arrange(f"runs/{store.owner}", self.job.files, self.deadline)
            placed = ()
        return conditions.Files(store.path("store"), placed, store.owner, _SMALL)

    def _cool_down(self, degrees: float) -> float:
        """Wait until the device's warmest zone is at most so warm; seconds waited.

        Raises:
            DeadlineError: it does not get there in time.
        """
        begun = time.monotonic()
        with self.steps.step("cool down", f"waiting for {self.device.name} to cool down") as step:
            while True:
                words = ["sh", "-c", conditions.STATE, "slipway", conditions.SYSFS]
                now = conditions.snapshot(run(self.transport, words, deadline=self.deadline).text).hottest_c
                if now is None:
                    step.note(f"{self.device.name} tells no temperature: not waited")
                if now is None or now <= degrees:
                    return time.monotonic() - begun
                self.deadline.check(f"{self.device.name} was at {now:.1f} °C, waiting for {degrees:g} °C")
                time.sleep(self.deadline.left(_COOLING))

    def _result(
        self,
        facts: DeviceFacts,
        found: Sequence[Finding],
        upload: Upload,
        answer: runner.RunnerResult,
        outputs: tuple[Comparison, ...],
        files: tuple[str, ...],
    ) -> Result:
        manifest, program = self.bundle.manifest, self.job.program
        return Result(
            created=now(),
            device=self.device.name,
            transport=self.device.transport,
            emulated=self.device.emulated,
            latency_note=EMULATED if self.device.emulated else "",
            facts=facts,
            bundle=BundleUsed(
                target=manifest.target,
                engine=manifest.engine,
                engine_version=manifest.offers.engine_version,
                toolchain=manifest.toolchain,
                digest=self.digest,
            ),
            program=ProgramUsed(
                name=self.job.name,
                file=self.job.model.source.name,
                size=self.job.model.size,
                sha256=self.job.model.sha256,
                model=program.model if program else "",
                scheme=program.scheme if program else "",
                method=self.job.method,
                reference_engine=self.job.reference_engine,
            ),
            preflight=tuple(found),
            upload=upload,
            runner=answer,
            conditions=self.conditions,
            outputs=outputs,
            verdict=overall(outputs),
            seconds=dict(self.steps.seconds),
            files=files,
        )
