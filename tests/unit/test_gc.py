"""What garbage collection takes and what it never takes: a function of the device's listing alone."""

from __future__ import annotations

import pytest

from deploy.store.gc import DAY, Listing, parse, plan

NOW = 1_000 * DAY
A, B, C, M, N = ("abcde"[index] * 64 for index in range(5))


def listing(**ages: float) -> Listing:
    """Three bundles of one file each (100 bytes), two programs (10 bytes); ages in days, 1 unless given."""
    lines = [f"now {NOW}", "link current/t-e ../bundles/one", "link previous/t-e ../bundles/two"]
    for name, digest in (("one", A), ("two", B), ("three", C)):
        used = int(NOW - ages.get(name, 1) * DAY)
        lines += [f"folder 0 {used} 0 bundles/{name}", f"file 100 {used} 2 store/{digest}"]
        lines.append(f"of {digest} bundles/{name}/bin/x y")
    for name, digest in (("m", M), ("n", N)):
        lines.append(f"file 10 {int(NOW - ages.get(name, 1) * DAY)} 1 store/{digest}")
    lines += ["folder 0 0 0 runs/other", "file 5 0 1 incoming/x.part", "nonsense", "file x y z store/q"]
    return parse(lines)


def test_what_the_device_lists_and_that_packed_weights_go_first() -> None:
    found = listing()
    assert (found.now, found.size, len(found.blobs)) == (NOW, 320, 5)
    assert found.files == {f"bundles/{name}/bin/x y": digest for name, digest in (("one", A), ("two", B), ("three", C))}
    assert found.links == {"current/t-e": "one", "previous/t-e": "two"}
    found = listing(m=2, n=3)
    lines = [f"file {size} {NOW - age} 1 weights/{name}" for size, age, name in (
        (40, 5, f"{M}.t-e"), (30, 9, f"{N}.t-e"), (7, 1, f"{'f' * 64}.t-e"), (3, 1, f"{M}.t-e.4711.0.tmp"),
    )]  # fmt: skip
    found.weights.update(parse(lines).weights)
    always = [f"weights/{'f' * 64}.t-e", f"weights/{M}.t-e.4711.0.tmp"]
    assert sorted(plan(found, max_bytes=1e9, max_days=30)) == sorted(always)
    assert sorted(plan(found, max_bytes=365, max_days=30)) == sorted([*always, f"weights/{N}.t-e"])
    mine = plan(found, max_bytes=355, max_days=30, in_use={N})
    assert sorted(mine) == sorted([*always, f"weights/{M}.t-e"])
    assert sorted(plan(found, max_bytes=1e9, max_days=2.5)) == sorted([*always, f"weights/{N}.t-e", f"store/{N}"])


@pytest.mark.parametrize(
    ("ages", "limits", "gone"),
    [
        ({}, {"max_bytes": 1e9, "max_days": 30}, []),
        ({"m": 31}, {"max_bytes": 1e9, "max_days": 30}, [f"store/{M}"]),
        ({"one": 99, "two": 99}, {"max_bytes": 0, "max_days": 1},
         ["bundles/three", f"store/{C}", f"store/{M}", f"store/{N}"]),
        ({"three": 31}, {"max_bytes": 1e9, "max_days": 30}, ["bundles/three", f"store/{C}"]),
        ({"m": 3, "n": 2}, {"max_bytes": 315, "max_days": 30}, [f"store/{M}"]),
        ({"m": 2, "n": 3}, {"max_bytes": 315, "max_days": 30}, [f"store/{N}"]),
        ({}, {"max_bytes": 250, "max_days": 30}, ["bundles/three", f"store/{C}", f"store/{M}", f"store/{N}"]),
        ({}, {"max_bytes": 0, "max_days": 30, "in_use": {"three", C, M, N}}, []),
        ({"m": -400}, {"max_bytes": 1e9, "max_days": 30}, []),  # the clock was set back
    ],
)  # fmt: skip
def test_what_goes(ages: dict[str, float], limits: dict[str, object], gone: list[str]) -> None:
    assert sorted(plan(listing(**ages), **limits)) == sorted(gone)  # type: ignore[arg-type]


def with_programs(**ages: float) -> Listing:
    """The same, with two folders of programs: ``p`` holds m and n, ``q`` holds n."""
    found = listing(**ages)
    lines = [f"now {NOW}"]
    for name, digests in (("p", (M, N)), ("q", (N,))):
        lines.append(f"folder 0 {int(NOW - ages.get(name, 1) * DAY)} 0 programs/{name}")
        lines += [f"of {digest} programs/{name}/{index}" for index, digest in enumerate(digests)]
    more = parse(lines)
    found.programs.update(more.programs)
    found.files.update(more.files)
    return found


@pytest.mark.parametrize(
    ("ages", "limits", "gone"),
    [
        ({}, {"max_bytes": 1e9, "max_days": 30}, []),
        ({"m": 99, "n": 99}, {"max_bytes": 1e9, "max_days": 30}, []),  # what a program holds stays with it
        ({"p": 31, "m": 99, "n": 99}, {"max_bytes": 1e9, "max_days": 30}, ["programs/p", f"store/{M}"]),
        ({"p": 31, "q": 31, "m": 99, "n": 99}, {"max_bytes": 1e9, "max_days": 30},
         ["programs/p", "programs/q", f"store/{M}", f"store/{N}"]),
        ({"p": 3, "q": 2}, {"max_bytes": 315, "max_days": 30}, ["programs/p", f"store/{M}"]),
        ({"p": 2, "q": 3}, {"max_bytes": 315, "max_days": 30},
         ["programs/q", "programs/p", f"store/{M}", f"store/{N}"]),
        ({}, {"max_bytes": 0, "max_days": 30, "in_use": {"three", "p", C, M, N}}, ["programs/q"]),
    ],
)  # fmt: skip
def test_programs_go_before_bundles(ages: dict[str, float], limits: dict[str, object], gone: list[str]) -> None:
    assert sorted(plan(with_programs(**ages), **limits)) == sorted(gone)  # type: ignore[arg-type]
