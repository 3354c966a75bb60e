"""Layers on KleidiAI's kernels, on processors that have what they want and on one that has not, under QEMU."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy
import pytest

from core.formats.bundle import Bundle
from tests.support import kleidiai
from tests.support.builds import made_by
from toolchains.bundle import builder

pytestmark = [pytest.mark.build, pytest.mark.export]

OWN = "kai_run_matmul_clamp_f32_"
HALF = "kai_run_matmul_clamp_f16_"
STATIC = "kai_run_matmul_clamp_qai8_"
WINDOWS = "kai_run_imatmul_clamp_"
LINEAR, CONVOLUTION, PRODUCT = "Fully Connected", "Convolution", "Batch Matrix Multiply"
QC8W_76 = OWN + "qai8dxp4x4_qsi8cxp4x4_16x4_neon_dotprod"
QC8W_76_ROW = OWN + "qai8dxp1x4_qsi8cxp4x4_1x4_neon_dotprod"
QC8W_MAX = OWN + "qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm"
QC8W_MAX_ROW = OWN + "qai8dxp1x8_qsi8cxp4x8_1x4_neon_dotprod"
QC8W_SME2 = OWN + "qai8dxp1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa"
QC8W_SME2_ROW = OWN + "qai8dxp1x4_qsi8cxp4vlx4_1x4vl_sme2_dot"
NEON = HALF + "f16_f16p32x1b_6x32_neon_mla"
F32_MAX, F32_MAX_ROW = OWN + "f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa", OWN + "f32_f32p2vlx1b_1x8vl_sme_mla"
F32_SME2, F32_SME2_ROW = OWN + "f32p2vlx1_f32p2vlx1biasf32_sme2_mopa", OWN + "f32_f32p2vlx1b_1x16vl_sme2_mla"
F16_MAX, F16_MAX_ROW = HALF + "f16p2vlx2_f16p2vlx2b_2vlx2vl_sme_mopa", HALF + "f16_f16p2vlx2b_1x8vl_sme_mla"
F16_SME2, F16_SME2_ROW = HALF + "f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa", HALF + "f16_f16p2vlx2b_1x16vl_sme2_dot"
EXPECTED: dict[tuple[str, str], dict[tuple[str, str], int]] = {
    # Kernels that the engine calls itself: how many nodes of the kind run on each.
    ("qc8w-21", "cortex-a76"): {(LINEAR, QC8W_76): 3},
    ("qc8w-1", "cortex-a76"): {(LINEAR, QC8W_76_ROW): 3},
    ("qc8w-21", "max"): {(LINEAR, QC8W_MAX): 3},
    ("qc8w-1", "max"): {(LINEAR, QC8W_MAX_ROW): 3},
    ("qc8w-21", "sme2"): {(LINEAR, QC8W_SME2): 3},
    ("qc8w-1", "sme2"): {(LINEAR, QC8W_SME2_ROW): 3},
    ("qd8-pixel", "cortex-a76"): {(CONVOLUTION, QC8W_76): 1},
    ("qd8-pixel", "sme2"): {(CONVOLUTION, QC8W_SME2): 1},
    ("qd8-image", "sme2"): {(CONVOLUTION, QC8W_SME2): 1},  # each point by itself, as upstream's engine does
    ("f16", "cortex-a76"): {(LINEAR, NEON): 3, (CONVOLUTION, NEON): 2, (PRODUCT, NEON): 2},
    ("f16", "sme2"): {
        (LINEAR, F16_SME2): 2,
        (LINEAR, F16_SME2_ROW): 1,
        (CONVOLUTION, F16_SME2): 2,
        (PRODUCT, F16_SME2): 1,
        (PRODUCT, F16_SME2_ROW): 1,
    },
    ("f32-kinds", "sme2"): {
        (LINEAR, F32_SME2): 2,
        (LINEAR, F32_SME2_ROW): 1,
        (CONVOLUTION, F32_SME2): 2,
        (PRODUCT, F32_SME2): 1,
        (PRODUCT, F32_SME2_ROW): 1,
    },
    ("f32", "max"): {(LINEAR, F32_MAX): 3},
    ("f32", "sme2"): {(LINEAR, F32_SME2): 3},
    ("f32-windows", "max"): {(CONVOLUTION, WINDOWS + "f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa"): 4},
    ("f32-windows", "sme2"): {(CONVOLUTION, WINDOWS + "f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme2_mopa"): 4},
    ("f16-windows", "max"): {(CONVOLUTION, WINDOWS + "f16_f16p2vlx2_f16p2vlx2b_2vlx2vl_sme_mopa"): 4},
    ("f16-windows", "sme2"): {(CONVOLUTION, WINDOWS + "f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa"): 4},
    ("qs8-windows", "max"): {(CONVOLUTION, WINDOWS + "qai8_qai8p2vlx4_qsi8cxp2vlx4sb_2vlx2vl_sme_mopa"): 4},
    ("qs8-windows", "sme2"): {(CONVOLUTION, WINDOWS + "qai8_qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa"): 4},
    ("f32-given", "max"): {(PRODUCT, F32_MAX): 2, (PRODUCT, F32_MAX_ROW): 1},
    ("f32-given", "sme2"): {(PRODUCT, F32_SME2): 2, (PRODUCT, F32_SME2_ROW): 1},
    ("f16-given", "cortex-a76"): {(PRODUCT, NEON): 3},
    ("f16-given", "max"): {(PRODUCT, F16_MAX): 2, (PRODUCT, F16_MAX_ROW): 1},
    ("f16-given", "sme2"): {(PRODUCT, F16_SME2): 2, (PRODUCT, F16_SME2_ROW): 1},
    ("qs8", "max"): {
        (LINEAR, STATIC + "qai8p2vlx4_qsi8cxp2vlx4sb_2vlx2vl_sme_mopa"): 3,
        (CONVOLUTION, STATIC + "qai8p2vlx4_qsi8cxp2vlx4sb_2vlx2vl_sme_mopa"): 2,
    },
    ("qs8", "sme2"): {
        (LINEAR, STATIC + "qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa"): 2,
        (LINEAR, STATIC + "qai8_qsi8cxp2vlx4sb_1x16vl_sme2_dot"): 1,
        (CONVOLUTION, STATIC + "qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa"): 2,
    },
    # Those that XNNPACK calls.
    ("qc4w", "cortex-a76"): {(LINEAR, OWN + "qai8dxp1x8_qsi4cxp8x8_1x8x32_neon_dotprod"): 3},
    ("qc4w", "max"): {(LINEAR, OWN + "qai8dxp4x8_qsi4cxp8x8_8x8x32_neon_i8mm"): 3},
    ("qb4w", "cortex-a76"): {(LINEAR, OWN + "qai8dxp1x8_qsi4c32p8x8_1x8x32_neon_dotprod"): 3},
    ("qb4w", "max"): {(LINEAR, OWN + "qai8dxp4x8_qsi4c32p4x8_16x4x32_neon_i8mm"): 3},
    # None: XNNPACK's own. One of each arithmetic.
    ("qc8w-21", "cortex-a53"): {},
    ("qc4w", "cortex-a53"): {},
    ("f16", "cortex-a53"): {},
    ("qs8", "cortex-a76"): {},
    ("f32", "cortex-a76"): {},
    ("f16-windows", "cortex-a76"): {},
    ("qs8-windows", "cortex-a76"): {},
}
LAYERS = {
    "f16": 7, "f32-kinds": 7, "f16-windows": 4, "f32-windows": 4, "f16-given": 3, "f32-given": 3,
    "qs8": 5, "qs8-windows": 4, "qd8-pixel": 1, "qd8-image": 1,
}  # fmt: skip
TOLERANCES = {
    **dict.fromkeys(("f16", "f16-windows", "f16-given"), 2**-7),
    **dict.fromkeys(("f32", "f32-kinds", "f32-windows", "f32-given"), 1e-6),
    "qs8": 0.0, "qs8-windows": 0.0, "qd8-image": 1 / 127,
}  # fmt: skip
"""Of the output's spread. Static int8 is the same bits; float16: eight roundings. Where the graph quantizes an image,
both engines quantize each point by itself: up to two steps of 8 bits from PyTorch's."""
DYNAMIC = 5e-3
"""Activations are rounded to 8 bits: one that falls between two steps may go the other way."""


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder with the programs of tests/support/kleidiai_layers.py."""
    return made_by(kleidiai.MAKER)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return builder.build(kleidiai.TARGET, "lean")


@pytest.mark.parametrize(("program", "cpu"), EXPECTED)
def test_a_layer_runs_on_the_kernel_its_processor_has(
    program: str, cpu: str, bundle: Bundle, programs: Path, tmp_path: Path
) -> None:
    looked = kleidiai.look(bundle, cpu, programs, program, tmp_path / "out")
    result = looked.result
    arms = [use for use in result["kernels"] if use["library"] == "KleidiAI"]
    assert Counter((use["node"].partition(" (")[0], use["kernel"]) for use in arms) == EXPECTED[program, cpu]
    assert len(result["kernels"]) == LAYERS.get(program, 3), "one a layer"
    # Every layer is in the profile by the name it has here.
    assert {use["node"] for use in result["kernels"]} <= {row["name"] for row in result["profile"]}
    assert looked.described == looked.uses, "the same without running it"
    wanted = sorted(programs.glob(f"{program}.out*.npy"))
    assert wanted
    for index, file in enumerate(wanted):
        want = numpy.load(file).astype(numpy.float64)
        allowed = TOLERANCES[program] * numpy.ptp(want) if program in TOLERANCES else DYNAMIC
        numpy.testing.assert_allclose(numpy.load(tmp_path / f"out{index}.npy"), want, rtol=0, atol=allowed)
