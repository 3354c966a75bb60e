"""Text from elsewhere: whatever stands in it, a terminal, a log of a CI and a reader of JSON only show it."""

from __future__ import annotations

import json
import random
import unicodedata
from typing import Any

import pytest

from core import console
from core.errors import RunError
from core.plain import json_text, one_line, plain, plain_values, says
from tests.support import drawn


def shown(text: str) -> bool:
    """Whether every letter of it is one that is only shown."""
    return all(
        unicodedata.category(letter) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} or letter in "\n\t" for letter in text
    )


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
    for text in drawn.texts(500):
        assert shown(plain(text))
        assert plain(plain(text)) == plain(text)
        assert shown(one_line(text))
        assert "\n" not in one_line(text)
        plain(text).encode()
    draw = random.Random(0)  # noqa: S311
    for value in (_value(draw) for _ in range(200)):
        written = json_text(value)
        assert shown(written)
        assert json.loads(written) == json.loads(json.dumps(value))
        assert shown(json_text(plain_values(value)))


def _value(draw: random.Random, depth: int = 4) -> Any:
    kind = draw.randrange(5 if depth else 3)
    if kind > 2:
        pairs = [(drawn.text(draw), _value(draw, depth - 1)) for _ in range(draw.randrange(4))]
        return dict(pairs) if kind == 3 else [value for _, value in pairs]
    return (drawn.text(draw), draw.randrange(-(1 << 70), 1 << 70), draw.random() < 0.5)[kind]


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
    said = "next: ./inv inspect shelf-net-make_model-fp32-lean --values"
    console.table("times", ["operator"], [["Add"]], said)
    console.grouped({"All": [["Add"]]}, ["operator"], said)
    assert capsys.readouterr().out.splitlines().count(said) == 2
    monkeypatch.setattr(console.out(), "width", 20)
    said = "To add Pixel: ./inv devices.add --adb R5CT200ABCD"
    console.say(said)
    console.say("Against results/of/monday/baseline.json: the same.")
    assert capsys.readouterr().out == f"{said}\nAgainst\nresults/of/monday/baseline.json:\nthe same.\n"
    monkeypatch.setattr(console.out(), "width", 12)
    console.say("models are a, b, c, d and e")
    assert capsys.readouterr().out == "models are\na, b, c, d\nand e\n"
