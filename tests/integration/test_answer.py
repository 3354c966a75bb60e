"""``./inv deploy --prompt`` and ``./inv chat``: text in, text out, of a language model in a folder of Hugging Face."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.paths import ROOT, cache_dir
from models.text import source
from models.text.tokenizer import Tokenizer
from models.users import packages
from tests.conftest import Inv
from tests.faults import server
from tests.support.processes import ran, well
from toolchains.targets import host_target

pytestmark = [pytest.mark.build, pytest.mark.export]

WORDS = ("<end>", "why", "is", "the", "sky", "so", "blue", "?", *(f"w{number}" for number in range(56)))
WIDE, HEADS, OWN, INNER = 64, 4, 2, 128
"""Of the model: elements of a token, heads, those of keys and values, and elements inside of a layer."""


def tokenizer(folder: Path, words: tuple[str, ...] = WORDS) -> Path:
    """A ``tokenizer.json`` of whole words, with the end of texts beside it."""
    end = {"id": 0, "content": "<end>", "special": True}
    end |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    vocabulary = {word: number for number, word in enumerate(words)}
    folder.mkdir(exist_ok=True)
    file = folder / "tokenizer.json"
    parts = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<end>"},
    }  # fmt: skip
    file.write_text(json.dumps(parts))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    return file


def weights() -> dict[str, np.ndarray[Any, Any]]:
    """Of a Llama with two layers, by Hugging Face's names."""
    head = WIDE // HEADS
    shapes = {"model.embed_tokens": (len(WORDS), WIDE), "model.norm": (WIDE,), "lm_head": (len(WORDS), WIDE)}
    for layer in range(2):
        rows = {
            "self_attn.q_proj": (WIDE, WIDE), "self_attn.k_proj": (OWN * head, WIDE), "self_attn.o_proj": (WIDE, WIDE),
            "self_attn.v_proj": (OWN * head, WIDE), "mlp.gate_proj": (INNER, WIDE), "mlp.up_proj": (INNER, WIDE),
            "mlp.down_proj": (WIDE, INNER), "input_layernorm": (WIDE,), "post_attention_layernorm": (WIDE,),
        }  # fmt: skip
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in rows.items()}
    random = np.random.default_rng(5)
    return {
        f"{name}.weight": random.normal(0.4 * (len(shape) == 1), 0.4, shape).astype("<f4")
        for name, shape in shapes.items()
    }


def hugging_face(folder: Path) -> Path:
    """The folder of a small language model, as its authors would publish it."""
    tokenizer(folder)
    config = {
        "model_type": "llama", "hidden_size": WIDE, "num_hidden_layers": 2, "num_attention_heads": HEADS,
        "num_key_value_heads": OWN, "intermediate_size": INNER, "vocab_size": len(WORDS), "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 64, "eos_token_id": 0, "bos_token_id": 0,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    header: dict[str, object] = {}
    data = b""
    for name, weight in weights().items():
        at = [len(data), len(data) + weight.nbytes]
        header[name] = {"dtype": "F32", "shape": list(weight.shape), "data_offsets": at}
        data += weight.tobytes()
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory, inv: Inv) -> Path:
    """The program, by upstream's exporter of language models."""
    folder = tmp_path_factory.mktemp("language")
    model = hugging_face(folder / "tiny")
    words = ("export", "--model", str(model), "--options", "context=48", "--json")
    done = well(inv(*words, env={"SLIPWAY_DIST": str(folder)}))
    assert json.loads(done.stdout)["path"] == str(folder / "programs/tiny-qd8_qb4w")
    assert "tiny-qd8_qb4w: " in done.stderr
    return folder / "programs/tiny-qd8_qb4w/model.pte"


@pytest.mark.parametrize("device", ["local", "pi"])
def test_a_model_goes_on_from_a_prompt(net: Path, device: str, inv: Inv) -> None:
    words = ("deploy", "--device", device, "--model", str(net), "--prompt", "why is the sky", "--generate", "9")
    done = well(inv(*words, "--profile"))
    assert re.search(r"([3-9]) of \1 tokens the same", done.stdout)
    assert re.search(r"\((xnn|slipway)_q[ds]8_f32_qb4w_gemm\w+\)", done.stdout), "the kernels, by their names"
    assert ("tokens/s" in done.stdout, "instructions a token" in done.stdout) == (device == "local", device == "pi")
    result = json.loads(well(inv(*words, "--temperature", "0.1", "--seed", "3", "--json")).stdout)
    assert result["runner"]["generated"]["prompt_tokens"] == 4
    assert [one["name"] for one in result["outputs"]] == ["scores"]
    assert result["verdict"] in ("identical", "agrees")


@pytest.mark.long
def test_plain_attention_runs_on_every_engine_and_says_the_same(net: Path, inv: Inv, tmp_path: Path) -> None:
    words = ("--model", str(net.parents[2] / "tiny"), "--options", "context=48;attention=plain")
    well(inv("export", *words, env={"SLIPWAY_DIST": str(tmp_path)}))
    plain, said = tmp_path / "programs/tiny-qd8_qb4w-plain/model.pte", set()
    for program, engine in ((plain, "executorch"), (plain, "lean"), (net, "lean"), (net, "executorch")):
        done = inv(
            "deploy", "--engine", engine, "--model", str(program), "--prompt", "why is the sky", "--generate", "9"
        )
        assert (done.returncode == 0) == ((program, engine) != (net, "executorch")), done.stderr
        if done.returncode:
            assert "llama::custom_sdpa.out" in done.stderr
        else:
            said.add(done.stdout.splitlines()[0])
    assert len(said) == 1


def test_a_talk_keeps_what_was_read(net: Path) -> None:
    said = "why is\n/stats\n\nthe sky\n/reset\n/stats\nwhy is\n" + "blue " * 50 + "\n"
    argv = [str(ROOT / "inv"), "chat", "--model", str(net), "--generate", "5"]
    done = well(ran(argv, input=said, timeout=300))
    answers = done.stdout.splitlines()
    assert len(answers) == 3
    assert answers[0] == answers[2] != answers[1]
    assert "holds 6 of 48 tokens" in done.stderr
    assert "The model has forgotten the talk.\nholds 0 of 48 tokens" in done.stderr
    assert "and the model holds 48" in done.stderr


def test_a_talk_in_a_terminal(net: Path) -> None:
    """Its lines are kept for the next talk, and nothing is drawn over the one that is typed."""
    ours, theirs = os.openpty()
    argv = [str(ROOT / "inv"), "chat", "--model", str(net), "--generate", "5"]
    env = {**os.environ, "TERM": "xterm"}
    child = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True)
    os.close(theirs)
    said, typed = b"", ["why is\n", "\x1b[A\n", "/exit\n"]
    with contextlib.suppress(OSError):  # the end of the terminal
        while piece := os.read(ours, 4096):
            said += piece
            if said.count(b"> ") + len(typed) == 4 and said.rstrip().endswith(b">"):
                time.sleep(1)  # somebody thinks
                os.write(ours, typed.pop(0).encode())
    os.close(ours)
    assert child.wait(60) == 0, said.decode(errors="replace")
    _, first, *rest = said.split(b"\n> ")
    assert b"running" not in b"".join([first[first.rindex(b"\n") :], *rest]).partition(b"/exit")[0], said
    assert (cache_dir("chat") / "history").read_text().splitlines()[-2:] == ["why is", "/exit"]


def test_a_talk_goes_on_after_the_connection_broke(net: Path, tmp_path: Path) -> None:
    """It is reset between two answers: the second one is what it is without that."""
    words = [str(ROOT / "inv"), "chat", "--model", str(net), "--generate", "5"]
    lines = ["why is\n", "the sky\n"]
    whole = well(ran(words, input="".join(lines), timeout=300))
    with server.serve(tmp_path / "board") as board:
        (tmp_path / "devices.toml").write_text(
            f'[board]\ntransport = "ssh"\nhost = "127.0.0.1"\nport = {board.port}\nuser = "{server.USER}"\n'
            f'key = "{board.client_key}"\n'
            f'known_hosts = "{board.known_hosts}"\ntarget = "{host_target().name}"\n'
        )
        with subprocess.Popen(
            [*words, "--device", "board"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, "SLIPWAY_DEVICES_FILE": str(tmp_path / "devices.toml")},
        ) as child:  # fmt: skip
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(lines[0])
            child.stdin.flush()
            first = child.stdout.readline()
            board.cut()
            rest, said = child.communicate(lines[1], timeout=300)
    assert child.returncode == 0, said
    assert first + rest == whole.stdout
    assert "The connection is there again; the model reads the talk once more." in said


def test_what_a_tokenizer_writes_it_reads(tmp_path: Path) -> None:
    """The formats of other libraries: tiktoken's, and SentencePiece's."""
    text = "Grüße, 世界 🙂!"
    tiktoken = tmp_path / "bytes.model"
    tiktoken.write_bytes(b"".join(b"%s %d\n" % (base64.b64encode(bytes([byte])), byte) for byte in range(256)))
    made = Tokenizer(tiktoken)
    numbers = made.encode(text)
    assert numbers[1:] == list(text.encode())  # the first one begins a text
    step = made.decoding()
    assert "".join(step(number) for number in numbers[1:]) == text
    assert len(made.stops) == 2
    piece = tmp_path / "piece.model"
    import sentencepiece  # type: ignore[import-not-found,unused-ignore]

    with piece.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([text, "why is the sky blue ?"] * 20), model_writer=file, vocab_size=300,
            hard_vocab_limit=False, byte_fallback=True,
        )  # fmt: skip
    made = Tokenizer(piece)
    step = made.decoding()
    assert "".join(step(number) for number in made.encode("the sky")[1:]).strip() == "the sky"


def test_what_is_not_the_models_text_is_refused(net: Path, tmp_path: Path, inv: Inv) -> None:
    own, other = tokenizer(tmp_path / "own"), tokenizer(tmp_path / "other", (*WORDS, "green"))
    damaged = tmp_path / "damaged.json"
    damaged.write_text(own.read_text()[:-9])
    for file, prompt, what in (
        (own, "why\x1b[2J", "The prompt has the control character U+001B at position 4."),
        (own, os.fsdecode(b"why\xff"), "--prompt is not UTF-8"),
        (own, " ", "The prompt is empty."),
        (damaged, "why", f"{damaged} is not a tokenizer."),
        (other, "why", "The tokenizer has 65 tokens, and the program scores 64."),
        (own, "sky " * 48, "The prompt has 48 tokens, and the program holds 48, its answer included."),
    ):
        done = inv("deploy", "--device", "local", "--model", str(net), "--tokenizer", str(file), "--prompt", prompt)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert what in done.stderr
        assert "Traceback" not in done.stderr


FAMILIES = ROOT / "tests" / "fixtures" / "llama" / "families.py"
OPTIMUM = ROOT / "tests" / "fixtures" / "optimum" / "exported.py"
ENTER = f"""import runpy, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from models.users import packages
packages.enter(packages.wanted(Path(sys.argv[1])))
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def entered(script: Path, *words: str) -> str:
    """What a script says, with the packages that the list beside it names."""
    packages.install(packages.wanted(script))
    argv = [sys.executable, "-c", ENTER, str(script), *words]
    return well(ran(argv, timeout=600)).stdout


@pytest.mark.long  # the other tests here have one family
def test_each_family_computes_what_transformers_computes() -> None:
    """The names of weights and the numbers of shapes, as `models.text` gives them to upstream's transformer."""
    found = [line.split() for line in entered(FAMILIES).splitlines()]
    assert len(found) == 8
    for name, far, unknown, lacks in found:
        assert float(far) < 1e-4, name
        assert (unknown, lacks) == ("0", "0"), name


def compared(folder: Path, *others: Path) -> list[list[str]]:
    """The lines of `tests.support.shapes`, in words."""
    result, log = folder / "result", folder / "log"
    words = (str(folder), str(result), *map(str, others))
    with log.open("wb") as kept, source.child("tests.support.shapes", *words, log=kept) as one:
        one.communicate()
    assert one.returncode == 0, log.read_text()[-2000:]
    return [line.split() for line in result.read_text().splitlines()]


@pytest.mark.long  # the other tests here have one shape, one scheme and two processors
def test_each_shape_and_scheme_answers_as_upstreams_runtime(tmp_path: Path) -> None:
    """Programs by upstream's exporter: prompts of several lengths, 64 tokens after each, processors of each kind."""
    *found, (*_, outside) = compared(tmp_path)
    assert int(outside) > 0, "other weights are seen"
    assert len(found) == 78
    assert [line for line in found if line[4:] != ["64", "0"]] == []


@pytest.mark.long  # the programs above are of the other exporter
def test_what_optimum_exports_answers_as_upstreams_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inv: Inv
) -> None:
    """Its Llama in float32 and its Gemma 3 in int4; one of its packages has no wheel, so that it comes as we advise."""
    wheels = tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "antlr4-python3-runtime==4.9.3", "-w", str(wheels)]
    well(ran(pip, timeout=300))
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    entered(OPTIMUM, str(tmp_path))
    programs = sorted(tmp_path.glob("*/model.pte"))
    assert [program.parent.name for program in programs] == ["gemma-int4", "llama"]
    found = compared(tmp_path, *programs)
    assert len(found) == 30
    assert [line for line in found if line[4:] != ["64", "0"]] == []
    for program in programs:
        words = ("--model", str(program), "--tokenizer", str(tokenizer(tmp_path / "words")), "--generate", "9")
        done = well(inv("deploy", "--device", "local", *words, "--prompt", "why is the sky"))
        assert re.search(r"(\d) of \1 tokens the same", done.stdout)
        argv = [str(ROOT / "inv"), "chat", *words]
        assert "of 128 tokens" in well(ran(argv, input="why is\n/stats\n", timeout=300)).stderr
