"""Nets on devices: which places there are, what is kept of a deploy, and the table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.errors import DeadlineError, DeviceBusyError, ProgramError, UnreachableError
from core.formats.bundle import Bundle
from core.processes.sweep import Journal
from verify.nets import deploying, taken
from verify.nets.deploying import Deployed, cell_name, places
from verify.nets.exporting import Export
from verify.nets.table import Exported, Net, load


def test_a_place_is_a_device_with_each_engine_that_it_has() -> None:
    names = [one.name for one in places("pi, pi2,phone")]
    assert sorted(names[:2]) == ["pi executorch", "pi lean"]
    assert names[2:] == ["pi2 lean", "phone lean"]
    assert {one.target for one in places("local")} == {places("local")[0].target}
    assert "onnxruntime" not in {one.engine for one in places("pi")}


def test_every_net_says_whose_it_is() -> None:
    of = {name: net.package for name, net in load().items()}
    assert (of["resnet18"], of["ssdlite320"], of["clip"], of["gru"]) == (
        "torchvision", "torchvision", "transformers", "torch",
    )  # fmt: skip
    assert all(bool(net.fails) == bool(net.issue) for net in load().values())
    wanted = {"torchvision", "timm", "transformers", "torchaudio"}
    assert sum(package in wanted for package in of.values()) >= 40


def test_a_failure_is_kept_and_a_device_that_is_away_ends_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Exported(Net("tiny", "timm.models:tiny", {}, ("fp32",)), "fp32")
    (place,) = places("pi2")
    monkeypatch.setattr(deploying, "key", lambda *_: "key")
    monkeypatch.setattr(deploying, "journal", lambda: Journal(tmp_path / "cells.jsonl", Deployed))
    monkeypatch.setattr(deploying, "_size", lambda _: 1)
    tried: list[str] = []

    def deploy(device: Any, *_: Any, **__: Any) -> Any:
        tried.append(device.name)
        raise ProgramError("It cannot be loaded.", "damaged") if len(tried) > 1 else UnreachableError("No answer.")

    monkeypatch.setattr(deploying, "deploy", deploy)
    bundle: Any = object.__new__(Bundle)
    with pytest.raises(UnreachableError):
        deploying.sweep([(place, bundle)], [program])
    found = deploying.sweep([(place, bundle)], [program])[cell_name(place, program)]
    assert found.error == "program: It cannot be loaded. damaged"
    deploying.sweep([(place, bundle)], [program])
    assert len(tried) == 2, "what is kept is not tried again"


def test_small_programs_come_first_and_a_device_in_use_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"large fp32": 9, "small fp32": 2}
    programs = [Exported(Net(name.split()[0], "timm.models:x", {}, ("fp32",)), "fp32") for name in sizes]
    (place,) = places("pi2")
    monkeypatch.setattr(deploying, "key", lambda _, __, program: program.name)
    monkeypatch.setattr(deploying, "journal", lambda: Journal(tmp_path / "cells.jsonl", Deployed))
    monkeypatch.setattr(deploying, "_size", lambda program: sizes[program.name])
    tried: list[str] = []

    def deploy(_: Any, __: Any, folder: Path, settings: Any, **___: Any) -> Any:
        tried.append(folder.name)
        assert settings.executions == (1, 0), "nothing is measured"
        raise DeviceBusyError("Somebody deploys.") if len(tried) == 1 else DeadlineError("It took too long.")

    monkeypatch.setattr(deploying, "deploy", deploy)
    bundle: Any = object.__new__(Bundle)
    deploying.sweep([(place, bundle)], programs)
    found = deploying.sweep([(place, bundle)], programs)
    assert tried == ["small-fp32", "large-fp32", "small-fp32"]
    assert [one.kind for one in found.values()] == ["deadline", "deadline"]


def test_the_table_says_what_agreed_what_differs_and_what_was_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nets = {name: Net(name, "timm.models:x", {}, ("fp32",)) for name in ("good", "bad", "later")}
    nets["known"] = Net("known", "timm.models:x", {}, ("fp32",), fails="no rule", issue="a/b-c#12")
    programs = [Exported(net, "fp32") for net in nets.values()]
    where = places("pi2,phone")
    made = {
        "good fp32": Export(folder="good-fp32", seconds=41.0),
        "bad fp32": Export(
            folder="bad-fp32", seconds=3.0, error="It cannot be made. /home/me/lib/a.py, line 3: a|b\nc"
        ),
        "known fp32": Export(folder="known-fp32", seconds=3.0, error="anything"),
    }
    seen = {
        "good fp32 on pi2 lean": Deployed(verdict="differs", outside=3, largest=2.51),
        "good fp32 on phone lean": Deployed(error="deadline: It took too long."),
    }

    class Sized:
        size = 2_500_000

    monkeypatch.setattr(taken, "load_program", lambda *_, **__: Sized)
    found = taken.rows(programs, where, made, seen)
    assert [taken.line(one) for one in found] == [
        ["good", "timm", "fp32", "41 s", "2.5 MB", "DIFFERS (2.5)", "over 10 min"],
        ["bad", "timm", "fp32", "no: It cannot be made. a.py, line 3: a|b c", ""],
        ["later", "timm", "fp32", "not run", ""],
        ["known", "timm", "fp32", "no: no rule (a/b-c#12)", ""],
    ]
    assert taken._filled(taken.line(found[1]), 7)[4:] == ["", "", ""], "a failed export's row has all columns, too"
    text = taken.markdown({"places": [one.name for one in where], "rows": found})
    assert text.startswith("1 nets of 4 exported, in 1 programs. pi2 lean: 0 of 1 agree, 0 were not run.")
    assert "| good | timm | fp32 | 41 s | 2.5 MB | DIFFERS (2.5) | over 10 min |" in text
    assert "| no: no rule ([a/b-c#12](https://github.com/a/b-c/issues/12)) | " in text
