"""A language model's prompt and its text, on this side of the device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core.errors import UsageError
from core.paths import ROOT
from deploy.run import generate
from deploy.run.events import Event
from deploy.run.needs import Method, Port
from deploy.run.runner import Generated
from deploy.run.settings import Prompt, Turn
from deploy.transport.deadline import NEVER
from tests.conftest import Inv

PTE = str(ROOT / "tests/fixtures/damaged/no-scales.pte")


class Sent:
    """A transport that remembers what it puts."""

    def __init__(self) -> None:
        self.files: dict[str, list[int]] = {}

    def put(self, local: Path, remote: str, *_: object) -> None:
        self.files[remote] = np.load(local).tolist() if remote.endswith(".npy") else []


def test_tokens_are_told_as_they_come_and_nothing_else_is() -> None:
    told: list[Event] = []
    turns: list[Turn] = []

    def turn(said: Turn) -> None:
        turns.append(said)

    sent = Sent()
    prompt = Prompt(tokens=Path("prompt.npy"), vocabulary=9, flags=(), turn=turn)
    hear = generate.hearing(
        sent,  # type: ignore[arg-type]
        "/runs/1",
        prompt,
        told.append,
        NEVER,
    )
    for piece in (
        b"@@before\ncpu 0\ntok",
        b"en 12\r\ntoken 7\ntoken ",
        b"-3\ntoken 12345678901\n token 4\n",
        b"turn stop 41 1024 12 83.5 9 310.25\nturn off 1 2 3 4 5 6\ntoken 9",
    ):
        hear(piece)
    assert [event.done for event in told] == [12, 7]
    assert turns == [Turn("stop", 41, 1024, 12, 83.5, 9, 310.25)]
    assert sent.files == {"/runs/1/turn1.npy": [-1], "/runs/1/turn1.end": []}
    hear(b"\n@@after\n")
    assert [(event.step, event.kind, event.done) for event in told[2:]] == [("run", "token", 9)]


@pytest.mark.parametrize(("vocabulary", "sound"), [(49152, True), (48900, True), (49153, False), (32000, False)])
def test_a_tokenizer_of_another_model_is_refused(vocabulary: int, sound: bool) -> None:
    prompt = Prompt(tokens=Path("prompt.npy"), vocabulary=vocabulary, flags=())
    method = Method(name="forward", outputs=(Port(dtype="float32", shape=(1, 49152)),))
    if sound:
        generate.check_vocabulary(prompt, method)
        return
    with pytest.raises(UsageError, match=f"has {vocabulary:,} tokens, and the program scores 49,152"):
        generate.check_vocabulary(prompt, method)


def test_speeds_are_those_of_reading_and_of_writing() -> None:
    found = Generated(prompt_tokens=8, prompt_ms=40, tokens=(5, 6, 2), token_ms=(10, 30), ended="stop", context=128)
    assert generate.written(found, load_ms=100, emulated=False) == [
        ["pp8", "200.0 tokens/s"],
        ["tg2", "50.0 tokens/s"],
        ["first token", "140 ms"],
        ["ended", "the model ended its text"],
    ]
    shown = generate.written(found, load_ms=100, emulated=True)
    assert not any("/s" in text or " ms" in text for _, text in shown)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--temperature", "1"), "--temperature goes with --prompt."),
        (("--model", "mlp", "--prompt", "Hi"), "--prompt does not go with mlp."),
        (("--model", "smollm2_135m"), "smollm2_135m needs a prompt."),
        (
            ("--model", "smollm2_135m", "--prompt", "Hi", "--partitioners", "none"),
            "--partitioners does not go with smollm2_135m.",
        ),
        (("--prompt", "Hi", "--prompt-file", "x.txt"), "--prompt cannot be used with --prompt-file."),
        (("--program", PTE, "--prompt-file", "missing.txt"), "missing.txt cannot be read."),
        (("--generate", "9"), "--generate goes with --prompt."),
        (("--program", PTE, "--prompt", "Hi", "--values"), "--prompt cannot be used with --values."),
        (("--program", PTE, "--prompt", "Hi", "--top-p", "2"), "--top-p cannot be 2."),
        (("--program", PTE, "--prompt", "Hi", "--tokenizer", "missing.json"), "There is no tokenizer missing.json."),
    ],
)
def test_what_does_not_go_together_is_refused_before_a_build(
    inv: Inv, words: tuple[str, ...], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolchains.bundle.builder.build", lambda *_: pytest.fail("it built"))
    done = inv("deploy", "--device", "local", *words)
    assert done.returncode == 2
    assert done.stderr.startswith(what)
