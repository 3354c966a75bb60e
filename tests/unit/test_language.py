"""Language models: what their files say, what is exported of them, prompts and talks on this side of the device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands.answer import allowed
from commands.chat import Talk, stats
from core.errors import ConfigError, ExportError, UsageError
from deploy.run import generate
from deploy.run.events import Event
from deploy.run.needs import Method, Port
from deploy.run.runner import Generated
from deploy.run.settings import Prompt, Turn
from deploy.transport.deadline import NEVER
from models.text import exporting, source
from models.zoo import get_model

CONFIG = {
    "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "vocab_size": 49152, "intermediate_size": 1536, "rms_norm_eps": 1e-5,
    "rope_theta": 100000, "max_position_embeddings": 8192,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0}


def test_gguf_says_the_same_as_hugging_face() -> None:
    fields = {
        "general.architecture": "llama", "llama.embedding_length": 576, "llama.block_count": 30,
        "llama.attention.head_count": 9, "llama.attention.head_count_kv": 3, "llama.feed_forward_length": 1536,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 100000.0,
        "llama.context_length": 8192, "tokenizer.ggml.tokens": ["a"] * 49152,
    }  # fmt: skip
    shape = exporting.shape_of(CONFIG, 1024, turned_as_hf=True)
    assert shape == exporting.shape_of(exporting.config_of(fields), 1024, turned_as_hf=True)
    assert (shape["head_dim"], shape["rope_theta"], shape["use_scaled_rope"]) == (64, 100000.0, False)


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"model_type": "qwen2", "sliding_window": 128, "use_sliding_window": False}, {"attention_qkv_bias": True}),
        ({"model_type": "qwen3", "head_dim": 128}, {"use_qk_norm": True, "qk_norm_before_rope": True, "head_dim": 128}),
        ({"model_type": "phi3", "partial_rotary_factor": 0.75}, {"partial_rotary_factor": 0.75}),
        ({"rope_scaling": LLAMA3}, {"use_scaled_rope": True, "rope_scale_factor": 8, "use_hf_rope": False}),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "rope_theta": None}, {"rope_theta": 5e5}),
        ({"model_type": "mistral", "sliding_window": 4096}, {"use_qk_norm": False}),
    ],
)
def test_families_that_can_be_exported(change: dict[str, Any], want: dict[str, Any]) -> None:
    shape = exporting.shape_of({**CONFIG, **change}, 1024, turned_as_hf=True)
    assert {name: shape[name] for name in want} == want


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model_type": "gemma3"}, "its architecture is 'gemma3'"),
        ({"rope_scaling": {"type": "yarn"}}, "its positions are scaled by 'yarn'"),
        ({"rope_scaling": {**LLAMA3, "low_freq_factor": 2.0}}, "its positions are scaled with other numbers"),
        ({"model_type": "mistral", "sliding_window": 512}, "its attention sees 512 tokens"),
        ({"max_position_embeddings": 512}, "it was trained for 512 tokens, not 1024"),
        ({"hidden_size": None}, "its configuration lacks"),
    ],
)
def test_others_are_refused_with_the_reason(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ExportError) as caught:
        exporting.shape_of({**CONFIG, **change}, 1024, turned_as_hf=True)
    assert caught.value.cause.startswith(why)


def test_weights_have_the_names_of_upstreams_transformer() -> None:
    assert exporting.names_of("model.embed_tokens.weight") == exporting.names_of("token_embd.weight")
    assert exporting.names_of("model.layers.7.self_attn.q_proj.bias") == ("layers.7.attention.wq.bias",)
    assert exporting.names_of("blk.7.ffn_gate.weight") == ("layers.7.feed_forward.w1.weight",)
    assert len(exporting.names_of("model.layers.0.self_attn.qkv_proj.weight")) == 3
    assert exporting.names_of("rope_freqs.weight") == ()
    for unknown in ("model.layers.0.mlp.experts.1.weight", "blk.0.attn_q.scale", "visual.patch.weight"):
        with pytest.raises(ExportError, match="cannot be exported"):
            exporting.names_of(unknown)


def test_a_model_is_found_by_its_name_and_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "My model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (tmp_path / "x.gguf").touch()
    assert source.is_language("smollm2_135m")
    assert source.is_language(str(folder))
    assert not source.is_language("mobilenet_v2")
    assert source.find("smollm2_135m").name == "smollm2_135m-qd8_qb4w"
    assert source.find(str(tmp_path / "x.gguf"), "fp32", {"context": "64"}).context == 64
    assert source.find("smollm2_135m", "", {"attention": "plain"}).name == "smollm2_135m-qd8_qb4w-plain"
    with pytest.raises(ConfigError, match="has no weights"):
        source.find(str(folder))
    (folder / "model.safetensors").touch()
    assert source.find(str(folder)).name == "My_model-qd8_qb4w"


@pytest.mark.parametrize(
    ("scheme", "options", "what"),
    [
        ("qs8", {}, "cannot be exported as qs8"),
        ("", {"bits": "4"}, "has no option bits"),
        ("", {"context": "0"}, "Option context cannot be '0'"),
        ("", {"group": "48"}, "Option group cannot be '48'"),
        ("", {"attention": "none"}, "Option attention cannot be 'none'"),
    ],
)
def test_what_it_cannot_have_is_refused(scheme: str, options: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        source.find("smollm2_135m", scheme, options)


class Letters:
    """A tokenizer in which a token is a letter, and a turn ends with a full stop."""

    def talk(self, turns: list[tuple[str, str]]) -> list[int]:
        return [ord(letter) for _, text in turns for letter in f"{text}."]

    def decoding(self) -> Callable[[int], str]:
        return chr


def talk_of(*lines: str) -> tuple[Talk, list[str]]:
    said = iter(lines)
    shown: list[str] = []

    def ask() -> str:
        try:
            return next(said)
        except StopIteration:
            raise EOFError from None

    return Talk(Letters(), ask, shown.append), shown  # type: ignore[arg-type]


def answered(talk: Talk, text: str, held: int, context: int = 100) -> list[int] | None:
    for letter in text:
        talk.token(ord(letter))
    return talk.turn(Turn("stop", held, context, held, 100.0, len(text) - 1, 50.0))


def test_a_talk_reads_only_what_is_new() -> None:
    talk, shown = talk_of("Hi", "/stats", "Bye", "/reset", "New")
    assert talk.first == [ord(letter) for letter in "Hi."]
    # The model holds "Hi.yo" and has written the full stop, which it has not read.
    assert answered(talk, "yo.", held=5) == [5, *map(ord, "..Bye.")]
    assert "".join(shown) == "yo.\n"
    # The template writes what the model said as it was; after a reset only what is equal from the beginning stays.
    assert answered(talk, "x", held=11) == [0, *map(ord, "New.")]
    assert answered(talk, "z", held=4) is None


def test_a_line_that_does_not_fit_is_not_sent() -> None:
    said = iter(["much too long", "ok"])
    assert Talk(Letters(), lambda: next(said), lambda _: None, context=12).first == [*map(ord, "ok.")]  # type: ignore[arg-type]
    talk, _ = talk_of("Hi", "much too long", "ok")
    assert answered(talk, "yo", held=4, context=12) == [4, *map(ord, "o.ok.")]


def test_a_talk_goes_on_over_another_connection() -> None:
    talk, shown = talk_of("Hi", "How", "End")
    assert answered(talk, "yo", held=4) is not None
    talk.token(ord("f"))  # and the connection breaks
    talk.begin()
    assert answered(talk, "yo", held=4) == [4, *map(ord, "o.How.")]
    answered(talk, "fine", held=12)
    assert "".join(shown) == "yo\nffine\n"


def test_a_talk_that_is_over_stays_over() -> None:
    talk, _ = talk_of("Hi")
    assert answered(talk, "yo", held=4) is None
    talk.begin()  # the device had not heard of it
    assert answered(talk, "yo", held=4) is None


def test_other_commands_say_where_a_language_model_goes() -> None:
    with pytest.raises(ConfigError, match="smollm2_135m is a language model"):
        get_model("smollm2_135m")


def test_stats_are_those_of_all_answers() -> None:
    said = Turn("stop", 41, 1024, 12, 60.0, 9, 300.0)
    assert stats(said, emulated=False) == "holds 41 of 1024 tokens; pp 200.0 tokens/s; tg 30.0 tokens/s"
    assert stats(said, emulated=True) == "holds 41 of 1024 tokens; its speed is emulated"
    assert stats(None, emulated=False) == "there is no answer yet"


class Sent:
    """A transport that remembers what it puts."""

    def __init__(self) -> None:
        self.files: dict[str, list[int]] = {}

    def put(self, local: Path, remote: str, *_: object) -> None:
        self.files[remote] = np.load(local).tolist() if remote.endswith(".npy") else []


def test_tokens_are_told_as_they_come_and_nothing_else_is() -> None:
    told: list[Event] = []
    turns: list[Turn] = []
    sent: Any = Sent()
    prompt = Prompt(tokens=Path("prompt.npy"), vocabulary=9, flags=(), turn=turns.append)
    hear = generate.hearing(sent, "/runs/1", prompt, told.append, NEVER)
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
    counted = generate.written(found, load_ms=100, emulated=True, counted=(8000, 5000, 6000))
    assert counted[:2] == [
        ["pp8", "emulated; 1,000 instructions a token"],
        ["tg2", "emulated; 5,500 instructions a token"],
    ]
    shown = generate.written(found, load_ms=100, emulated=True)
    assert not any("/s" in text or " ms" in text for _, text in shown)


@pytest.mark.parametrize(
    ("node", "other", "want"),
    [
        ("Fully Connected (NC, F32)", 0, 0.001),
        ("Fully Connected (NC, QD8, F32, QB4W)", 0, 0.3),
        ("", 0.5, 1.0),
        ("Fully Connected (NC, PF16)", 0, 0.078125),
    ],
)
def test_scores_may_differ_by_a_rounding_where_there_is_one(node: str, other: float, want: float) -> None:
    scores = np.array([-5.0, 1.0, 5.0])
    assert allowed(scores + [0, other, 0], scores, [node]) == pytest.approx(want)
