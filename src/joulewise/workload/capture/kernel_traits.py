"""What kernels' names tell: whether they multiply matrices, and in which number format."""

from __future__ import annotations

import re

from joulewise.domain.trace import KernelSignature
from joulewise.domain.workload import Dtype
from joulewise.workload.capture.names import short_name

_PRODUCT = re.compile(
    r"(?<!fb)gemm|gemv|cutlass|wgmma|xmma|nvjet|conv|fmha|flash|attention|\ACijk_|[dw]grad|winograd"
    r"|attn_[fb]wd|triton_tem_|fprop|scudnn|matmul|(?<![a-z])bmm_|(?<![a-z])mm_kernel|sdpa",
    re.IGNORECASE,
)
# Helpers of products: they sum up parts, change layouts, prepare and finish.
_HELPER = re.compile(
    r"reduce|combine|offsets|convert|dot_do_o|transform|transpose|epilogue|nhwc_?to|nchw_?to"
    r"|execute_split_k|cache|elementwise|memset|padding|finalize|quant|im2col|col2im",
    re.IGNORECASE,
)
_FORMATS: tuple[tuple[re.Pattern[str], Dtype], ...] = (
    (re.compile(r"e4m3|e5m2|fp8|float8", re.IGNORECASE), Dtype.FP8),
    (re.compile(r"bf16|bfloat|nvjet_t|_BBS_", re.IGNORECASE), Dtype.BF16),
    (re.compile(r"tf32|s1688(?!4)|tensor16x8x8"), Dtype.TF32),
    (re.compile(r"f16(?!\d)|half|hgemm|h\d+gemm|s16816|s884|nvjet_h|_HHS_"), Dtype.FP16),
    (re.compile(r"dgemm|double|f64"), Dtype.FP64),
)


def is_product_name(name: str) -> bool:
    """Whether a kernel of this name multiplies matrices."""
    short = short_name(name)
    return _PRODUCT.search(short) is not None and _HELPER.search(short) is None


def is_helper_name(name: str) -> bool:
    """Whether a kernel of this name only helps others that multiply."""
    return _HELPER.search(short_name(name)) is not None


def format_of_name(name: str) -> Dtype:
    """The number format of a matrix kernel by its name; FP32 where that does not tell."""
    for pattern, dtype in _FORMATS:
        if pattern.search(name):
            return dtype
    return Dtype.FP32


def product_format(signature: KernelSignature, stated: Dtype | None) -> Dtype:
    """The arithmetic of a matrix kernel: its inputs' format, FP32 on tensor cores being TF32."""
    if stated is None:
        return format_of_name(signature.name)
    is_tf32 = stated is Dtype.FP32 and format_of_name(signature.name) is Dtype.TF32
    return Dtype.TF32 if is_tf32 else stated
