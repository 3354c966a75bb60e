"""Words and JSON from elsewhere, damaged or hostile: only shown, a value, or our own error."""

from __future__ import annotations

import json
import random
import time
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest

from core import console
from core.errors import RunError, SlipwayError
from core.plain import json_text, one_line, plain, plain_values, says
from core.strict_json import JsonError, parse_json
from deploy.devices import conditions
from deploy.devices.probe import parse
from deploy.store import gc
from deploy.transport.adb.server import parse_devices
from deploy.transport.base import Completed
from tests.unit.test_probe import PHONE, PI, TEXT
from tests.unit.test_transports import LISTING as DEVICES

LINUX, PROBE = (text.replace("@@cores\n4", "@@online\n0-3") for text in (PI, PHONE))
RUN = f"""@@placed k
{TEXT}@@end
ran 100.25 103.50
@@files k
10 result.json
5 output0.npy
@@data
123456789012345"""

STORE = """\
now 1700000000
link current/a ../bundles/b
file 100 1700000000 2 store/aa
folder 0 1700000000 0 bundles/b
of aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bundles/b/bin/x
"""

BITS = ["\x1b[2J", "\x9b", "²", "９", "9" * 5000, "-1", "1.2.3", "inf", "nan", "1e999", "\ud800", "\u202e", "\x00",
        "\r", "\x85", "\u2028", "@@end", "@@before", "\n", " ", "0-" + "9" * 30, "[", "]: [", "x" * 10_000]  # fmt: skip

FILES = conditions.Files(marker="k", most=1000)

READERS: dict[str, tuple[str, Callable[[str], object]]] = {
    "probe": (PROBE, parse),
    "conditions": (RUN, lambda text: conditions.conditions(text, "0", 0.0)),
    "small files": (RUN, lambda text: FILES.brought(text.encode(errors="replace"))),
    "store": (STORE, lambda text: gc.parse(text.splitlines())),
    "adb devices": (DEVICES, parse_devices),
    "message": (RUN, lambda text: Completed((), 1, b"", text.encode(errors="replace")).message),
}


@pytest.mark.parametrize("name", READERS)
def test_damaged_words(name: str) -> None:
    good, read = READERS[name]
    assert read(good) is not None
    noise = random.Random(5)  # noqa: S311 - the same damage every time
    for _ in range(500):
        text = good
        for _ in range(noise.randint(1, 4)):
            at = noise.randrange(len(text) + 1)
            kind = noise.randrange(3)
            if kind == 0:
                text = text[:at] + noise.choice(BITS) + text[at:]
            elif kind == 1:
                text = text[:at] + text[at + noise.randint(1, 30) :]
            else:
                # A number becomes something else.
                digits = [index for index, letter in enumerate(text) if letter.isdigit()]
                at = noise.choice(digits) if digits else 0
                text = text[:at] + noise.choice(BITS) + text[at + 1 :]
        try:
            read(text)
        except SlipwayError as error:
            assert len(str(error)) < 3000


def test_what_the_probe_says_is_plain() -> None:
    facts = parse(LINUX.replace("Raspberry Pi 4 Model B Rev 1.4\0", "Pi\x1b]0;x\x07\u202e[bold]\x9b1m::error::x"))
    assert facts.board == r"Pi]0;x[bold]1m:\x3aerror::x"
    assert facts.cores == 4
    assert parse(LINUX.replace("0-3", "0-999999999999")).cores == 1
    assert parse(LINUX.replace("3885396", "9" * 4000)).memory_total == 0
    zones = conditions.snapshot(RUN.replace("48312 cpu-thermal", "²1381 x"), "before").temperatures_c
    assert zones == {"cpu-thermal": 51.0, "skin": 33.4}


def shown(text: str) -> bool:
    """Whether every letter of it is one that is only shown."""
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return all(unicodedata.category(letter) not in hidden or letter in "\n\t" for letter in text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b31m\x9d0;t\x9c", r"\x9b31m\x9d0;t\x9c"),
        ("done\rfailed", r"done\rfailed"),
        ("one\r\ntwo\n\tthree", "one\ntwo\n\tthree"),
        ("exe.\u202egpj\u202c \u2066x\u2069", r"exe.\u202egpj\u202c \u2066x\u2069"),
        ("a\u200bb\ufeff\u00ad\U000e0041", r"a\u200bb\ufeff\xad\U000e0041"),
        ("\ud800 \x00 \x7f \x85 \u2028", r"\ud800 \x00 \x7f \x85 \u2028"),
        ("Grüße, 日本 👍 µs ≤ |Δ|", "Grüße, 日本 👍 µs ≤ |Δ|"),
        ("aten::add.out and ::1", "aten::add.out and ::1"),
        ("::error file=a::b", r":\x3aerror file=a::b"),
        ("  ::SET-OUTPUT name=a::b", r"  :\x3aSET-OUTPUT name=a::b"),
        ("x:::warning::y", r"x::\x3awarning::y"),
        ("##[error]old", r"##\x5berror]old"),
    ],
)
def test_what_becomes_of_it(text: str, expected: str) -> None:
    assert plain(text) == expected


def test_whatever_it_is_is_only_shown_and_json_reads_back() -> None:
    assert shown(plain("".join(map(chr, (*range(0x20000), *range(0xE0000, 0xE1000))))))
    draw = random.Random(0)  # noqa: S311
    for text in (letters(draw) for _ in range(500)):
        assert shown(plain(text))
        assert plain(plain(text)) == plain(text)
        assert shown(one_line(text))
        assert "\n" not in one_line(text)
        plain(text).encode()
    for value in (_value(draw) for _ in range(200)):
        written = json_text(value)
        assert shown(written)
        assert json.loads(written) == json.loads(json.dumps(value))
        assert shown(json_text(plain_values(value)))


def _value(draw: random.Random, depth: int = 4) -> Any:
    kind = draw.randrange(5 if depth else 3)
    if kind > 2:
        pairs = [(letters(draw), _value(draw, depth - 1)) for _ in range(draw.randrange(4))]
        return dict(pairs) if kind == 3 else [value for _, value in pairs]
    return (letters(draw), draw.randrange(-(1 << 70), 1 << 70), draw.random() < 0.5)[kind]


def test_words_of_others_and_errors_are_plain() -> None:
    assert says("pi", " no \x07space\n") == r'pi says: "no \x07space"'
    assert says("pi", "a\n\n::error::b\n") == "pi says:\n  | a\n  | :\\x3aerror::b"
    assert says("pi", " \n") == ""
    long = says("pi", "".join(f"line {number} {'x' * 300}\n" for number in range(100)))
    assert long.count("\n") <= 8
    assert "line 99" in long
    assert len(long) < 1300
    error = RunError("a\x1b[31m", "b\rc", "d\u202e", ["e\x9b"])
    assert str(error) == "a\\x1b[31m\nCause: b\\rc\nTry: d\\u202e"
    assert error.names == (r"e\x9b",)
    assert shown("".join(error.args))


def test_nothing_gets_through_the_console(capfd: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2J[bold]b[/bold] [link=http://x]l[/link] :warning: \x9b1m\u202e"
    console.note(evil)
    console.table(evil, [evil], [[evil]], evil)
    console.print_json({evil: evil})
    for stream in capfd.readouterr():
        assert shown(stream)
        assert "[bold]b[/bold] [link=http://x]l[/link] :warning:" in " ".join(stream.split())


def test_commands_and_paths_are_kept_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console.out(), "width", 20)
    said = "next: ./inv inspect shelf-net-make_model-fp32-lean --json"
    console.table("times", ["operator"], [["Add"]], said)
    console.grouped({"All": [["Add"]]}, ["operator"], said)
    assert capsys.readouterr().out.splitlines().count(said) == 2
    said = "To add Pixel: ./inv devices.add --adb R5CT200ABCD"
    console.say(said)
    console.say("Against results/of/monday/baseline.json: the same.")
    assert capsys.readouterr().out == f"{said}\nAgainst\nresults/of/monday/baseline.json:\nthe same.\n"
    monkeypatch.setattr(console.out(), "width", 12)
    console.say("models are a, b, c, d and e")
    assert capsys.readouterr().out == "models are\na, b, c, d\nand e\n"


@pytest.mark.parametrize(
    "text", ['{"a": [1, -2.5e3, true, null, "\\u00e4 \\ud83d\\ude00 \\" \\\\ [[["]}', "[]", "0", '"x"']
)
def test_what_is_read(text: str) -> None:
    assert parse_json(text) == json.loads(text)
    assert parse_json(text.encode()) == json.loads(text)


@pytest.mark.parametrize(("raw", "why"), [
    (b"", "not JSON"), (b"{", "not JSON"), (b"[1,]", "not JSON"), (b"]" * 10_000_000, "not JSON"),
    (b"\xff\xfe", "not JSON"), (b"\xef\xbb\xbf[]", "not JSON"), (b'"\xed\xa0\x80"', "not JSON"),
    (b"[" * 200_000 + b"]" * 200_000, "recursion limit"), (b"NaN", "not JSON"), (b"[-Infinity]", "not JSON"),
    (b"9" * 5000, "out of range"), (b'"\\ud800"', "not JSON"), (b'[{"\\udc00": 1}]', "not JSON"),
    (b'"' + b"x" * (1 << 24) + b'"', "16,777,216 are read"), ('"\ud800"', "not JSON"),
])  # fmt: skip
def test_what_is_refused(raw: bytes | str, why: str) -> None:
    begun = time.monotonic()
    with pytest.raises(JsonError, match=why) as caught:
        parse_json(raw)
    assert len(str(caught.value)) < 300
    assert time.monotonic() - begun < 10


ODD = "\x00\t\n\r\x1b\x7f\x85\x9b\xad\u200b\u2028\u202e\ud800\udfff\ufeff\U000e0041<>&\"'[]:#|\\{}"


def letters(draw: random.Random) -> str:
    """Some of all that there are, half of a character, too, and often odd ones."""
    kinds = (lambda: draw.choice(ODD), lambda: chr(draw.randrange(0x180)), lambda: chr(draw.randrange(0x110000)))
    return "".join(draw.choice(kinds)() for _ in range(draw.randint(0, 60)))
