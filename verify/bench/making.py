"""Make nets and export them, one request a line: ``python -m verify.bench.making``. Imports torch and the packages.

A process of its own, because only it has the packages of the nets on its path.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from core.errors import ExportError
from models.export import RECORD, export_request
from models.loading import reference
from models.lowering.progress import log_path
from models.reference.host import Host
from models.request import Request
from models.request.options import Options
from models.request.partitioners import DEFAULT
from models.zoo.schemes import get_scheme
from verify.bench.nets import FLOAT, Exported, Input, Net, load
from verify.programs import serve

SEED = 11
_LAZY = (
    *("torchaudio", "super_image", "super_image.models", "super_image.data"),
    *("libreyolo", "libreyolo.models", "libreyolo.models.yolo9", "libreyolo.models.yolox", "libreyolo.training"),
)
"""Packages whose start loads what the nets do not need."""
_SAMPLES = 2
"""For the statistics of batch norms, and for calibration."""


def _without_start(name: str) -> None:
    """Make a package importable without running its ``__init__``, which loads what the nets do not need.

    A package that is not there stays so: only its own nets fail.
    """
    parent, _, own = name.rpartition(".")
    if parent and parent not in sys.modules:
        return
    path = sys.modules[parent].__path__ if parent else None
    spec = importlib.machinery.PathFinder.find_spec(own, path)
    if spec is None or spec.submodule_search_locations is None:
        return
    module = ModuleType(name)
    module.__path__ = list(spec.submodule_search_locations)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    sys.modules[name] = module


def prepare_packages() -> Any:
    """Make the packages importable beside a CPU build of torch, and keep them from downloading anything."""
    # The package index's torchvision and torchaudio are GPU builds: their libraries do not load here. torchvision
    # wants its operators declared; no net below uses them.
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    for package in _LAZY:
        _without_start(package)
    sys.modules["h5py"] = ModuleType("h5py")  # reads super-image's sets of data

    def refuse(*_: Any, **__: Any) -> Any:
        raise RuntimeError("a net wants to download weights")

    torch.hub.load_state_dict_from_url = refuse
    torch.hub.download_url_to_file = refuse
    return library  # its declarations last as long as it


def _named(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


class _Called(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """A net with inputs by position and a tuple of tensors as its result."""

    def __init__(self, net: Any, names: tuple[str, ...], take: tuple[str, ...]) -> None:
        super().__init__()
        self.net = net
        self.names = names
        self.take = take

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        found = self.net(**dict(zip(self.names, inputs, strict=True)))
        if self.take:
            return tuple(found[name] for name in self.take)
        return tuple(reference.flat(found))


def _tensor(text: str, generator: torch.Generator) -> Any:
    one = Input.of(text)
    if one.below:
        return torch.randint(one.below, one.shape, generator=generator)
    return torch.randn(one.shape, generator=generator)


def _fill(net: Any) -> list[str]:
    """Give weights that training begins with zeros other values: outputs would be zeros, and agree with anything.

    Returns the names of the layers.
    """
    filled = []
    for name, layer in net.named_modules():
        weight = getattr(layer, "weight", None)
        if isinstance(weight, nn.Parameter) and weight.numel() and not bool(weight.any()):
            nn.init.normal_(weight, mean=0.3 if weight.dim() == 1 else 0.0, std=0.02)  # one dimension: a norm's
            filled.append(name)
    return filled


def _settle(net: Any, samples: list[tuple[Any, ...]]) -> None:
    """Give batch norms the statistics of noise: with those of a new net, numbers would grow from layer to layer."""
    norms = [one for one in net.modules() if isinstance(one, nn.modules.batchnorm._BatchNorm)]  # all of them
    for norm in norms:
        norm.momentum = None  # average over all that it sees
        norm.train()
    with torch.no_grad():
        for sample in samples if norms else ():
            net(*(torch.cat([one, one.flip(-1)]) if one.dim() > 1 else one for one in sample))
    net.eval()


def make(net: Net) -> tuple[Any, tuple[Any, ...], None, list[tuple[Any, ...]]]:
    """The net with its inputs and samples to calibrate with, as a model function returns them (docs/models.md)."""
    torch.manual_seed(SEED)
    settings = {name: None if value == "none" else value for name, value in (net.settings or {}).items()}
    made = _named(net.make)(_named(net.config)(**settings)) if net.config else _named(net.make)(**settings)
    called = _Called(made, tuple(net.inputs), net.take).eval()
    _fill(called)
    generator = torch.Generator().manual_seed(SEED)
    drawn = [tuple(_tensor(text, generator) for text in net.inputs.values()) for _ in range(_SAMPLES + 1)]
    _settle(called, drawn[1:])
    return called, drawn[0], None, drawn[1:]


def export(program: Exported, out: Path, host: Host) -> Path:
    """Export into a folder below ``out``, with the float model's outputs beside the reference.

    Raises:
        ExportError: the net cannot be made or exported.
    """
    seen: list[Any] = []

    def made() -> Any:
        try:
            value = make(program.net)
        except Exception as error:  # a package can raise anything
            again = "./inv models --add, if a package is missing or has another version"
            raise ExportError(
                f"{program.net.name} cannot be made.", f"{type(error).__name__}: {error}", again
            ) from error
        seen.extend(reference.eager(value[0], value[1]))
        return value

    request = Request(
        model=program.net.name, name=program.folder, scheme=get_scheme(program.scheme), source=Path(__file__),
        function=program.net.name, zoo=None, partitioners=DEFAULT, options=Options(), folder=out / program.folder,
        maker=made,
    )  # fmt: skip
    folder = export_request(request, force=True, host=host)
    # As large as the program three times over; only upstream's Inspector reads it.
    (folder / RECORD).unlink()
    for index, one in enumerate(seen):
        reference.save(folder, f"{FLOAT}{index}", one)
    return folder


# Nets of packages that need more than a call with settings: a part of one, or several settings in one another.


class _Heads(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """A detector up to its heads; the search for boxes after them has no fixed number of results."""

    def __init__(self, detector: Any) -> None:
        super().__init__()
        self.backbone = detector.backbone
        self.head = detector.head

    def forward(self, x: Any) -> Any:
        return self.head(list(self.backbone(x).values()))


def ssdlite() -> Any:
    """torchvision's SSDlite with MobileNetV3: backbone and heads."""
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    return _Heads(ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None))


def clip() -> Any:
    """A small CLIP: both towers."""
    from transformers import CLIPConfig, CLIPModel

    small = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4}
    text = {**small, "vocab_size": 8192, "max_position_embeddings": 16, "eos_token_id": 8191}
    return CLIPModel(CLIPConfig(text_config=text, vision_config={**small, "patch_size": 16}, projection_dim=256))


def transformer_encoder() -> Any:
    """torch's own encoder, four layers."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


def ds_cnn() -> Any:
    """The keyword spotter of MLPerf Tiny: 49 frames of 10 coefficients to 12 words."""

    def block(inputs: int, kernel: tuple[int, int], stride: int, groups: int = 1) -> list[Any]:
        padding = (kernel[0] // 2, (kernel[1] - 1) // 2)
        layer = nn.Conv2d(inputs, 64, kernel, stride, padding, groups=groups, bias=False)
        return [layer, nn.BatchNorm2d(64), nn.ReLU()]

    separable = [layer for _ in range(4) for layer in (*block(64, (3, 3), 1, 64), *block(64, (1, 1), 1))]
    layers = [*block(1, (10, 4), 2), *separable, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12)]
    return nn.Sequential(*layers)


def main() -> None:
    """Answer requests until there are no more."""
    keep = prepare_packages()
    with Host(log_path("nets")) as host:
        serve(lambda asked: export(Exported(load()[asked["net"]], asked["scheme"]), Path(asked["out"]), host))
    del keep


if __name__ == "__main__":
    main()
