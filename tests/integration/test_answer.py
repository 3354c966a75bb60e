"""``./inv deploy --prompt``: text in, text out, by a model whose next word is known."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.conftest import Inv

pytestmark = [pytest.mark.build, pytest.mark.export]

WORDS = ("<end>", "why", "is", "the", "sky", "so", "blue", "?")
NET = """
import torch

class Chain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.following = torch.nn.Embedding(8, 8)
        self.following.weight.data = torch.eye(8).roll(1, 1) + 0.01 * torch.rand(8, 8)

    def forward(self, tokens, position):
        return self.following(tokens)[:, -1] + 0 * position.float()

def make_model():
    return Chain(), (torch.tensor([[1]]), torch.tensor([0]))
"""


def tokenizer(folder: Path, words: tuple[str, ...] = WORDS) -> Path:
    """A ``tokenizer.json`` of whole words, with the end of texts beside it."""
    end = {"id": 0, "content": "<end>", "special": True}
    end |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    vocabulary = {word: number for number, word in enumerate(words)}
    folder.mkdir()
    file = folder / "tokenizer.json"
    file.write_text(
        json.dumps(
            {
                "version": "1.0", "truncation": None, "padding": None, "added_tokens": [end], "normalizer": None,
                "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
                "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<end>"},
            }
        )
    )  # fmt: skip
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    return file


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory, inv: Inv) -> Path:
    """The program."""
    folder = tmp_path_factory.mktemp("chain")
    (folder / "net.py").write_text(NET)
    done = inv("export", "--model", f"{folder}/net.py:make_model", env={"SLIPWAY_DIST": str(folder)})
    assert done.returncode == 0, done.stderr
    return folder / "programs/net-make_model-fp32/model.pte"


@pytest.mark.parametrize("device", ["local", "pi"])
def test_a_model_goes_on_from_a_prompt(net: Path, tmp_path: Path, device: str, inv: Inv) -> None:
    words = ("deploy", "--device", device, "--program", str(net), "--tokenizer", str(tokenizer(tmp_path / "text")))
    done = inv(*words, "--prompt", "why is")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the sky so blue ?\n")
    assert "the model ended its text" in done.stdout
    assert ("tokens/s" in done.stdout) == (device == "local")
    done = inv(*words, "--prompt", "why is", "--generate", "2", "--temperature", "0.1", "--seed", "3", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)["runner"]["generated"]
    assert (result["prompt_tokens"], result["tokens"], result["ended"]) == (2, [3, 4], "length")
    assert "the sky\n" in done.stderr


def test_what_is_not_the_models_text_is_refused(net: Path, tmp_path: Path, inv: Inv) -> None:
    own, other = tokenizer(tmp_path / "own"), tokenizer(tmp_path / "other", (*WORDS, "green"))
    damaged = tmp_path / "damaged.json"
    damaged.write_text(own.read_text()[:-9])
    for file, prompt, what in (
        (own, "why\x1b[2J", "The prompt has the control character U+001B at position 4."),
        (own, os.fsdecode(b"why\xff"), "--prompt is not UTF-8"),
        (own, " ", "The prompt is empty."),
        (damaged, "why", f"{damaged} is not a tokenizer."),
        (other, "why", "The tokenizer has 9 tokens, and the program scores 8."),
    ):
        done = inv("deploy", "--device", "local", "--program", str(net), "--tokenizer", str(file), "--prompt", prompt)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert what in done.stderr
        assert "Traceback" not in done.stderr
