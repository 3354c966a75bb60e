"""Compiled parts of torchvision and torchaudio: what stands in for them, and what says that it cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from core.paths import ROOT
from tests.support.processes import ran, well

pytestmark = pytest.mark.export

# As the packages are laid out; their own code needs a download.
PACKAGES = {
    "torchvision/__init__.py": "from torchvision import ops",
    "torchvision/ops/__init__.py": "from . import boxes, deform_conv, ps_roi_align, ps_roi_pool, roi_align, roi_pool",
    "torchvision/ops/boxes.py": (
        "import torch\n"
        "torch.library.register_fake('torchvision::nms')(\n"
        "    lambda dets, scores, iou: dets.new_empty(torch._custom_ops.get_ctx().create_unbacked_symint(),"
        " dtype=torch.long))\n"
        "def _assert_has_ops(): raise RuntimeError('not compiled')\n"
        "def nms(boxes, scores, limit):\n    _assert_has_ops()\n"
        "    return torch.ops.torchvision.nms(boxes, scores, limit)\n"
    ),
    **{
        f"torchvision/ops/{name}.py": (
            "def _assert_has_ops(): raise RuntimeError('not compiled')\ndef call(): _assert_has_ops()\n"
        )
        for name in ("deform_conv", "ps_roi_align", "ps_roi_pool", "roi_pool")
    },
    "torchvision/ops/roi_align.py": (
        "import functools\n"
        "def plain(): return 'plain'\n"
        "@functools.wraps(plain)\ndef _roi_align(): raise RuntimeError('it compiles itself')\n"
    ),
    "torchaudio/__init__.py": "from . import _extension\n@_extension.fail_if_no_align\ndef forced_align(): ...\n",
    "torchaudio/_extension/__init__.py": "raise OSError('libc10_cuda.so')\n",
}

SCRIPT = """
import sys
from pathlib import Path

from models.users import packages

folder = Path(sys.argv[1])
sys.path.append(str(folder))
keep = packages.serve(folder)

import torchaudio
import torchvision.ops.boxes as boxes
import torchvision.ops.roi_align as roi_align
import torchvision.ops.roi_pool as roi_pool

assert roi_align._roi_align() == "plain"
said = {
    roi_pool.call: "torchvision's roi_pool is compiled", torchaudio.forced_align: "torchaudio's forced_align is",
    lambda: boxes.nms(0, 0, 0.3): "return boxes and scores from forward",
}
for call, words in said.items():
    try:
        call()
    except RuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
"""


def test_what_is_compiled_for_gpus_has_a_stand_in_or_says_so(tmp_path: Path) -> None:
    for name, text in PACKAGES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    well(ran([sys.executable, "-c", SCRIPT, tmp_path], cwd=ROOT))
