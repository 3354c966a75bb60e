"""What files of language models say, in the words of upstream's transformer: its shape, and its weights' names.

Two kinds of files: a folder of Hugging Face (``config.json``, ``*.safetensors``) and GGUF. Both name the same numbers.
Without torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from core.errors import ExportError

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


def _refuse(why: str, hint: str = "docs/models.md, Language models, lists what can be exported") -> None:
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
    raise ExportError(
        "This language model cannot be exported.",
        f"upstream's transformer has no weight for {name}",
        "docs/models.md, Language models, lists what can be exported",
        [name],
    )
