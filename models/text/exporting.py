"""Export a language model by upstream's own exporter: ``python -m models.text.exporting '{...}'``.

A process of its own, because only it has the exporter's packages on its path. It says on standard output what it does,
a line each. Imports torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TextIO
from unittest.mock import patch

import torch

from core.errors import ExportError, SlipwayError
from models.lowering import shortcuts
from models.lowering.progress import quiet

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "phi3")
"""Architectures whose layers upstream's transformer has."""
_GGUF = {
    "hidden_size": "embedding_length", "num_hidden_layers": "block_count", "head_dim": "attention.key_length",
    "num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv",
    "intermediate_size": "feed_forward_length", "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base", "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window",
}  # fmt: skip
_PARTS = {
    "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo", "self_attn.q_norm": "attention.q_norm_fn",
    "self_attn.k_norm": "attention.k_norm_fn", "mlp.gate_proj": "feed_forward.w1", "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
    "attn_q": "attention.wq", "attn_k": "attention.wk", "attn_v": "attention.wv", "attn_output": "attention.wo",
    "attn_q_norm": "attention.q_norm_fn", "attn_k_norm": "attention.k_norm_fn", "ffn_gate": "feed_forward.w1",
    "ffn_down": "feed_forward.w2", "ffn_up": "feed_forward.w3", "attn_norm": "attention_norm", "ffn_norm": "ffn_norm",
}  # fmt: skip
"""Parts of a layer: Hugging Face's names, then GGUF's."""
_WHOLE = {
    "model.embed_tokens": "tok_embeddings", "model.norm": "norm", "lm_head": "output",
    "token_embd": "tok_embeddings", "output_norm": "norm", "output": "output",
}  # fmt: skip
SPLIT = {
    "self_attn.qkv_proj": ("attention.wq", "attention.wk", "attention.wv"),
    "attn_qkv": ("attention.wq", "attention.wk", "attention.wv"),
    "mlp.gate_up_proj": ("feed_forward.w1", "feed_forward.w3"),
}
"""Weights of which several follow one another in one."""
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""How Llama 3 scales positions, besides its factor: upstream's numbers are fixed."""
_IGNORED = re.compile(r"rope_freqs\.weight|.*\.rotary_emb\.inv_freq")


def config_of(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A GGUF file's fields in the words of ``config.json``."""
    family = str(fields.get("general.architecture", ""))
    found = {word: fields[f"{family}.{name}"] for word, name in _GGUF.items() if f"{family}.{name}" in fields}
    scaling = fields.get(f"{family}.rope.scaling.type", "none")
    factors = [name for name in ("rope_factors_long", "rope_factors_short") if f"{family}.{name}" in fields]
    return {
        "model_type": family, "vocab_size": len(fields.get("tokenizer.ggml.tokens", ())), **found,
        **({"rope_scaling": {"rope_type": scaling}} if scaling != "none" or factors else {}),
    }  # fmt: skip


def shape_of(config: Mapping[str, Any], context: int, turned_as_hf: bool) -> dict[str, Any]:
    """Upstream's ``params.json`` for a model of ``config.json``.

    Args:
        config: as Hugging Face names it.
        context: tokens that the program will hold.
        turned_as_hf: whether the rows of queries and keys are in Hugging Face's order, not in that of the original.

    Raises:
        ExportError: upstream's transformer does not have such layers.
    """
    family = config.get("model_type", "")
    if family not in FAMILIES:
        _refuse(f"its architecture is {family or 'not named'!r}; upstream's transformer has {', '.join(FAMILIES)}")
    try:
        heads, wide = int(config["num_attention_heads"]), int(config["hidden_size"])
        found = {
            "dim": wide,
            "n_layers": int(config["num_hidden_layers"]),
            "n_heads": heads,
            "n_kv_heads": int(config.get("num_key_value_heads") or heads),
            "head_dim": int(config.get("head_dim") or wide // heads),
            "vocab_size": int(config["vocab_size"]),
            "hidden_dim": int(config["intermediate_size"]),
            "norm_eps": float(config.get("rms_norm_eps", 1e-6)),
        }
    except (KeyError, TypeError, ValueError) as error:
        _refuse(f"its configuration lacks {error}")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "llama3"):
        _refuse(f"its positions are scaled by {kind!r}; upstream's transformer knows llama3's way")
    if any(rope.get(name, usual) != usual for name, usual in _LLAMA3.items()):
        _refuse("its positions are scaled with other numbers than Llama 3's")
    longest = int(config.get("max_position_embeddings") or 0)
    window = config.get("sliding_window") if config.get("use_sliding_window", family != "qwen2") else None
    if window and int(window) < context:
        _refuse(
            f"its attention sees {window} tokens, fewer than the context of {context}", f"--options context={window}"
        )
    if longest and context > longest:
        _refuse(f"it was trained for {longest} tokens, not {context}", f"--options context={longest}")
    return {
        **found,
        "rope_theta": float(config.get("rope_theta") or rope.get("rope_theta") or 10000.0),
        "use_scaled_rope": kind == "llama3",
        **({"rope_scale_factor": int(rope["factor"])} if kind == "llama3" else {}),
        # Upstream scales positions only where rows are in the original's order (`exporting` puts them there).
        "use_hf_rope": turned_as_hf and kind != "llama3",
        "attention_qkv_bias": family == "qwen2" or bool(config.get("attention_bias")),
        "use_qk_norm": family == "qwen3",
        "qk_norm_before_rope": family == "qwen3",
        "partial_rotary_factor": float(config.get("partial_rotary_factor") or 1.0),
    }


def _refuse(why: str, hint: str = "docs/models.md, Language models, lists what can be exported") -> NoReturn:
    raise ExportError("This language model cannot be exported.", why, hint)


def names_of(name: str) -> tuple[str, ...]:
    """A weight's names in upstream's transformer; several if it holds several; none if nothing reads it.

    Raises:
        ExportError: it has no such weight.
    """
    if _IGNORED.fullmatch(name):
        return ()
    stem, _, kind = name.rpartition(".")
    if stem in _WHOLE and kind == "weight":
        return (f"{_WHOLE[stem]}.weight",)
    layer = re.fullmatch(r"(?:model\.layers|blk)\.([0-9]+)\.(.+)", stem)
    if layer and kind in ("weight", "bias"):
        parts = SPLIT.get(layer[2], (_PARTS[layer[2]],) if layer[2] in _PARTS else ())
        if parts:
            return tuple(f"layers.{layer[1]}.{part}.{kind}" for part in parts)
    _refuse(f"upstream's transformer has no weight for {name}")


_AT_ONCE = 256
"""Tokens that one execution reads at most: memory for what lies between layers is planned for so many."""
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}NUMBER| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PRE = {
    "smollm": "", "gpt-2": "", "llama-bpe": _WORDS.replace("NUMBER", "{1,3}"), "qwen2": _WORDS.replace("NUMBER", ""),
}  # fmt: skip
"""How tokenizers of GGUF files divide a text before they look for tokens."""


class _Gguf:
    """A GGUF file."""

    def __init__(self, file: Path) -> None:
        from gguf import GGUFReader  # type: ignore[import-not-found,unused-ignore]

        try:
            self._reader = GGUFReader(file)
            self._fields = {name: field.contents() for name, field in self._reader.fields.items()}
        except (ValueError, IndexError, KeyError, OverflowError, UnicodeDecodeError) as error:
            raise ExportError(
                f"{file} is not a whole GGUF file.",
                f"it ends too early, or is damaged: {error}",
                "download it again",
                [str(file)],
            ) from error
        self.config = config_of(self._fields)
        for tensor in self._reader.tensors:
            if tensor.name == "rope_freqs.weight":  # how Llama 3 scales positions: the last one has the whole factor
                self.config["rope_scaling"] = {"rope_type": "llama3", "factor": float(max(tensor.data))}
        # Those that its writers turned back into the original's order.
        self.turned_as_hf = self.config["model_type"] not in ("llama", "mistral")
        self.ends = [self._fields[name] for name in ("tokenizer.ggml.eos_token_id",) if name in self._fields]
        self.begin = self._fields.get("tokenizer.ggml.bos_token_id")

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each weight by its name, in float32."""
        import numpy as np
        from gguf import dequantize

        for tensor in self._reader.tensors:
            found = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            yield tensor.name, torch.from_numpy(found)

    def write_tokenizer(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json``."""
        from tokenizers import (  # type: ignore[import-not-found,unused-ignore]
            AddedToken,
            Regex,
            Tokenizer,
            decoders,
            models,
            pre_tokenizers,
        )  # fmt: skip

        fields = self._fields
        before = fields.get("tokenizer.ggml.pre", "gpt-2")
        if fields.get("tokenizer.ggml.model") != "gpt2" or before not in _PRE:
            raise ExportError(
                "The GGUF file's tokenizer cannot be taken over.",
                f"its kind is {fields.get('tokenizer.ggml.model')}, {before}; {', '.join(_PRE)} of gpt2 can",
                "--model with the model's folder of Hugging Face instead",
            )
        tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
        merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"]]
        made = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
        divided = [pre_tokenizers.Split(Regex(_PRE[before]), "isolated")] if _PRE[before] else []
        bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not divided)
        digits = [pre_tokenizers.Digits(individual_digits=True)] if before == "smollm" else []
        made.pre_tokenizer = pre_tokenizers.Sequence([*digits, *divided, bytewise])
        made.decoder = decoders.ByteLevel()
        special = [token for token, kind in zip(tokens, kinds, strict=True) if kind in (3, 4)]
        made.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
        made.save(str(folder / "tokenizer.json"))
        roles = {"eos_token": self.ends[0] if self.ends else None, "bos_token": self.begin}
        found = {role: tokens[number] for role, number in roles.items() if number is not None}
        found["chat_template"] = fields.get("tokenizer.chat_template", "")
        (folder / "tokenizer_config.json").write_text(json.dumps(found, indent=1), encoding="utf-8")


class _Folder:
    """A folder of Hugging Face."""

    turned_as_hf = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.config = _json(folder / "config.json")
        generation = folder / "generation_config.json"
        said = {**self.config, **(_json(generation) if generation.is_file() else {})}
        ends = said.get("eos_token_id")
        self.ends = ends if isinstance(ends, list) else [ends] if ends is not None else []
        self.begin = said.get("bos_token_id")

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each weight by its name, in float32."""
        from safetensors import SafetensorError, safe_open  # type: ignore[import-not-found,unused-ignore]

        file = self._folder
        try:
            for file in sorted(self._folder.glob("*.safetensors")):
                with safe_open(file, "pt") as opened:
                    for name in opened.keys():  # noqa: SIM118  # it is not a mapping
                        yield name, opened.get_tensor(name).float()
        except SafetensorError as error:
            raise ExportError(f"{file} is damaged.", str(error), "download it again", [str(file)]) from error

    def write_tokenizer(self, folder: Path) -> None:
        """Copy the tokenizer's files."""
        for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "tokenizer.model"):
            if (self._folder / name).is_file():
                shutil.copyfile(self._folder / name, folder / name)


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ExportError(f"{file} cannot be read.", str(error), "the model's own file", [str(file)]) from error
    if not isinstance(found, dict):
        raise ExportError(f"{file} cannot be read.", "it is not an object of JSON", "the model's own file", [str(file)])
    return found


def _in_pairs(weight: torch.Tensor, head: int) -> torch.Tensor:
    """Rows of queries or keys in the original's order, which turns neighbours; Hugging Face turns halves of a head."""
    return weight.unflatten(0, (-1, 2, head // 2)).transpose(1, 2).flatten(0, 2)


def _state(source: _Gguf | _Folder, shape: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The weights by the names of upstream's transformer."""
    queries, keys = (shape[heads] * shape["head_dim"] for heads in ("n_heads", "n_kv_heads"))
    found: dict[str, torch.Tensor] = {}
    for name, weight in source.weights():
        into = names_of(name)
        sizes = [queries, keys, keys] if len(into) == 3 else [len(weight) // max(1, len(into))] * len(into)
        for one, part in zip(into, weight.split(sizes) if into else (), strict=True):
            turn = source.turned_as_hf and not shape["use_hf_rope"] and one.split(".")[-2] in ("wq", "wk")
            found[one] = (_in_pairs(part, shape["head_dim"]) if turn else part).contiguous()
    if "tok_embeddings.weight" not in found:
        raise ExportError("The model has no weights.", "its files hold no embedding", "the model's own files")
    found.setdefault("output.weight", found["tok_embeddings.weight"])
    return found


def _head_in_int8() -> contextlib.AbstractContextManager[Any]:
    """Let upstream quantize the last layer in 8 bits: in 4 it would cost the most accuracy of all layers."""
    from torchao import quantization
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig
    from torchao.quantization.granularity import PerAxis

    before = quantization.quantize_

    def both(model: Any, config: Any, filter_fn: Any = None, **options: Any) -> None:
        head = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int8, weight_granularity=PerAxis(0))
        before(model, config, filter_fn=lambda one, name: name != "output" and filter_fn(one, name), **options)
        before(model, head, filter_fn=lambda one, name: name == "output" and filter_fn(one, name), **options)

    return patch.object(quantization, "quantize_", both)


def _export(words: dict[str, Any], said: TextIO) -> None:
    # Upstream's module imports it to download models, which it does not do here.
    sys.modules.setdefault("huggingface_hub", types.SimpleNamespace(snapshot_download=None))  # type: ignore[arg-type]
    from executorch.examples.models.llama.export_llama_lib import export_llama
    from executorch.extension.llm.export.config.llm_config import DtypeOverride, LlmConfig, ModelType

    def say(text: str) -> None:
        print(text, file=said, flush=True)

    path, folder, scheme, context = Path(words["source"]), Path(words["folder"]), words["scheme"], words["context"]
    say("reading the weights")
    source = _Folder(path) if path.is_dir() else _Gguf(path)
    shape = shape_of(source.config, context, source.turned_as_hf)
    scratch = folder / "scratch"
    scratch.mkdir()
    torch.save(_state(source, shape), scratch / "weights.pth")
    (scratch / "params.json").write_text(json.dumps(shape), encoding="utf-8")
    source.write_tokenizer(folder)
    config = LlmConfig()
    config.base.model_class = ModelType.llama3_1  # it leaves the factor of the positions as it is
    config.base.checkpoint, config.base.params = str(scratch / "weights.pth"), str(scratch / "params.json")
    ends = {"get_bos_id": source.begin if source.begin is not None else 0, "get_eos_ids": source.ends}
    config.base.metadata = json.dumps(ends)
    config.model.use_kv_cache, config.model.use_sdpa_with_kv_cache = True, not words["plain"]
    config.model.dtype_override = DtypeOverride.fp16 if scheme == "fp16" else DtypeOverride.fp32
    config.export.max_seq_length, config.export.max_context_length = min(context, _AT_ONCE), context
    config.export.output_name = str(folder / "model.pte")
    config.backend.xnnpack.enabled = config.backend.xnnpack.extended_ops = True
    if scheme in ("qd8_qb4w", "qd8_qc8w"):
        config.quantization.qmode = "8da4w" if scheme == "qd8_qb4w" else "8da8w"
        config.quantization.group_size = words["group"] if scheme == "qd8_qb4w" else 0
        config.quantization.embedding_quantize = "8,0"
    say("exporting and lowering, layer by layer")
    shortcuts.torchao_by_shape()
    head = _head_in_int8() if scheme == "qd8_qb4w" else contextlib.nullcontext()
    with head, shortcuts.in_torch(), shortcuts.in_lowering():
        export_llama(config)
    shutil.rmtree(scratch)


def main(request: str) -> int:
    """Do it; the exit status. A failure's words are in ``error.json`` of the folder."""
    words = json.loads(request)
    failed = Path(words["folder"]) / "error.json"
    try:
        with quiet(Path(words["log"])) as said:
            _export(words, said)
    except SlipwayError as error:
        failed.write_text(json.dumps([error.what, error.cause, error.hint]), encoding="utf-8")
        return 1
    except Exception as error:  # noqa: BLE001  # upstream's exporter raises whatever it meets; the log has all of it
        text = f"{type(error).__name__}: {str(error)[:400]}"
        failed.write_text(json.dumps(["Upstream's exporter failed.", text, ""]), encoding="utf-8")
        return 1
    return 0


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.exit(main(sys.argv[1]))
