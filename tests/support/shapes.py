"""Small language models by upstream's exporter, on the lean engine and on upstream's runtime.

``python -m tests.support.shapes FOLDER RESULT`` writes a line for each program, processor and prompt: their names, the
prompt's tokens, how many tokens followed, and what `compare` says; with more words, of those programs of somebody
else. A process with the packages of language models (`models.text.source.child`).
"""

from __future__ import annotations

import functools
import json
import logging
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from commands.answer import allowed
from core.formats.bundle import RUNNER
from models.lowering import shortcuts
from models.text import answers
from toolchains.bundle.builder import build
from toolchains.emulation.platforms import NATIVE, platform_for
from toolchains.targets import get_target

FAMILIES: dict[str, dict[str, Any]] = {
    "llama3_2": {"n_kv_heads": 2, "use_scaled_rope": True, "rope_scale_factor": 32, "rope_theta": 500000.0},
    "qwen3_0_6b": {"n_kv_heads": 2, "head_dim": 32, "use_hf_rope": True, "use_qk_norm": True, "rope_theta": 1e6,
                   "qk_norm_before_rope": True},
    "qwen2_5_0_5b": {"n_kv_heads": 1, "use_hf_rope": True, "attention_qkv_bias": True, "rope_theta": 1e6},
    "smollm2": {"dim": 96, "n_heads": 3, "n_kv_heads": 1, "use_hf_rope": True, "rope_theta": 1e5},
    "phi_4_mini": {"dim": 128, "n_kv_heads": 4, "use_hf_rope": True, "partial_rotary_factor": 0.75},
}  # fmt: skip
"""By upstream's names, what a shape has of its own, besides that of `_export`."""
INT4: dict[str, Any] = {"qmode": "8da4w", "group_size": 32}
EMBED4: dict[str, Any] = {"embedding_quantize": "4,32"}
EMBED8: dict[str, Any] = {"embedding_quantize": "8,0"}
FP16: dict[str, Any] = {"dtype_override": "fp16"}
BYTES: dict[str, Any] = {"quantize_kv_cache": True}
PLAIN: dict[str, Any] = {"use_sdpa_with_kv_cache": False}
ARM, X86 = "linux-arm64", "linux-x86_64"
A53, A76, MAX, ANDROID = (ARM, "cortex-a53"), (ARM, "cortex-a76"), (ARM, "max"), ("android-arm64", "cortex-a76")
ARMV7, ARMV6 = ("linux-armv7", "cortex-a7"), ("linux-armv6", "arm1176")
VNNI, AVX2 = (X86, "-avx512_vnni"), (X86, "-avx512f")
Row = tuple[str, Mapping[str, Any], Mapping[str, Any], tuple[tuple[str, str], ...]]
ROWS: dict[str, Row] = {
    "llama-fp32": ("llama3_2", {}, {}, (AVX2, A53, ARMV6)),
    "llama-int4-bytes": ("llama3_2", BYTES, INT4 | EMBED4, (VNNI, MAX, ARMV7)),
    "llama-window": ("llama3_2", {"local_global_attention": [64, 0]}, INT4 | EMBED8, (A76,)),
    "qwen3-fp16": ("qwen3_0_6b", FP16, {}, (AVX2, A76)),
    "qwen3-int4-plain": ("qwen3_0_6b", PLAIN, INT4 | EMBED8, (VNNI, A53)),
    "qwen2-int4": ("qwen2_5_0_5b", {}, INT4 | EMBED8, (AVX2, ANDROID, ARMV6)),
    "smollm2-int4-each": ("smollm2", {"enable_dynamic_shape": False}, INT4 | EMBED4, (A53, MAX)),
    "phi-bytes": ("phi_4_mini", BYTES, EMBED8, (A76, ARMV7)),
}
"""Each program's family, words of the exporter for the model and for quantization, and where it runs besides here:
target, and a processor or the features of this one that are not used."""
OTHERS: Row = ("", {}, {}, (AVX2, A76, MAX, ARMV7))
"""The same of programs that others exported."""
PROMPTS, COUNT, CONTEXT, TOKENS = (1, 7, 33), 64, 128, 64
"""Tokens of the prompts and of the answer, those that a program holds, and those that there are."""


def _export(family: str, model: Mapping[str, Any], quantization: Mapping[str, Any], folder: Path) -> Path:
    # Upstream's module imports it to download models, which it does not do here.
    sys.modules.setdefault("huggingface_hub", SimpleNamespace(snapshot_download=None))  # type: ignore[arg-type]
    from executorch.examples.models.llama.export_llama_lib import export_llama
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs
    from executorch.extension.llm.export.config.llm_config import LlmConfig
    from omegaconf import OmegaConf  # type: ignore[import-not-found,unused-ignore]

    folder.mkdir()
    shape = {
        "dim": 64, "n_layers": 2, "n_heads": 4, "vocab_size": TOKENS, "hidden_dim": 128, "norm_eps": 1e-5,
        "rope_theta": 10000.0, **FAMILIES[family],
    }  # fmt: skip
    (folder / "params.json").write_text(json.dumps(shape))
    torch.manual_seed(3)
    state = construct_transformer(ModelArgs(**shape)).state_dict()
    torch.save({name: 0.3 * torch.randn_like(one) + ("norm" in name) for name, one in state.items()}, folder / "w.pth")
    words = {
        "base": {"model_class": family, "params": str(folder / "params.json"), "checkpoint": str(folder / "w.pth"),
                 "metadata": json.dumps({"get_bos_id": 0, "get_eos_ids": [TOKENS]})},
        "model": {"use_kv_cache": True, "use_sdpa_with_kv_cache": True, "dtype_override": "fp32", **model},
        "export": {"max_seq_length": CONTEXT, "max_context_length": CONTEXT, "output_name": str(folder / "model.pte")},
        "quantization": quantization, "backend": {"xnnpack": {"enabled": True, "extended_ops": True}},
    }  # fmt: skip
    export_llama(OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(LlmConfig), words)))
    return folder / "model.pte"


@functools.cache
def _runner(target: str) -> Path:
    return build(target, "lean").path / RUNNER


def compare(program: Path, target: str, cpu: str, size: int, other: Path | None = None) -> tuple[int, int]:
    """How many tokens followed a prompt of ``size``, and how many of them, and of its scores, upstream's has otherwise.

    ``program`` is in a folder of its own, in which this leaves files. Upstream's runtime has ``other``, if given.
    """
    prompt = np.random.default_rng(size).integers(0, TOKENS, size)
    given, out = program.with_name("prompt.npy"), program.with_name("out")
    np.save(given, prompt)
    argv = [f"--model_path={program}", f"--prompt={given}", f"--generate={COUNT}", f"--output_file={out}", "--json"]
    platform = platform_for(get_target(target), NATIVE if cpu.startswith("-") else cpu)
    unused = [f"--cpu_features={cpu}"] if cpu.startswith("-") else []
    done = platform.run(_runner(target), [*argv, *unused])
    if done.returncode:
        raise RuntimeError(f"{program} on {target} {cpu}: {done.stderr}")
    said = json.loads(done.stdout)
    tokens = np.array(said["generated"]["tokens"])
    read, kept = program.with_name("read.npy"), program.with_name("scores.npy")
    np.save(read, np.concatenate([prompt, tokens[:-1]]))
    answers.main(str(other or program), str(read), size, str(kept))
    scores = np.load(kept)
    nodes = [one["node"] for one in said["kernels"]] + [one["wanted"] for one in said.get("fallbacks", ())]
    _, model, _, _ = ROWS.get(program.parent.name, OTHERS)
    atol = allowed(scores[0], scores[1], nodes, plain=model == PLAIN)
    behind = scores[1:].max(axis=1) - np.take_along_axis(scores[1:], tokens[:, None], axis=1)[:, 0]
    far = np.abs(np.load(f"{out}1.npy").reshape(-1) - scores[1])
    return len(tokens), int((behind > atol).sum()) + int((far > atol).sum())


def main(folder: Path, result: Path, *others: str) -> None:
    """Do it; the last line of our own is of two programs with the same weights in float32 and in int4."""
    warnings.simplefilter("ignore")
    logging.disable()
    shortcuts.torchao_by_shape()
    made: dict[str, Path] = {}
    with result.open("w", encoding="utf-8") as told:

        def tell(name: str, target: str, cpu: str, size: int, other: Path | None = None) -> None:
            count, outside = compare(made[name], target, cpu, size, other)
            told.write(f"{name} {target} {cpu} {size} {count} {outside}\n")
            told.flush()

        def everywhere(name: str, places: tuple[tuple[str, str], ...]) -> None:
            for target, cpu in ((X86, NATIVE), *places):
                for size in PROMPTS:
                    tell(name, target, cpu, size)

        for program in map(Path, others):
            made[program.parent.name] = program
            everywhere(program.parent.name, OTHERS[-1])
        for name, (family, model, quantization, places) in {} if others else ROWS.items():
            with shortcuts.in_torch(), shortcuts.in_lowering():
                made[name] = _export(family, model, quantization, folder / name)
            everywhere(name, places)
        if not others:
            tell("llama-fp32", X86, NATIVE, PROMPTS[-1], made["llama-int4-bytes"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
