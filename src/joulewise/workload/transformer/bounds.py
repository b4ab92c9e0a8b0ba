"""What a workload file can hold of a built workload; what is larger is refused by its option.

The bounds are those of `joulewise.store.workload_works`, so that whatever is built can be
written and read back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from joulewise.domain.errors import InputError
from joulewise.domain.workload import IterationSize, KernelKind, KernelWork
from joulewise.store.workload_works import LEAST_WAIT_S, SIZE_BOUNDS, WORK_BOUNDS, is_idle
from joulewise.workload.transformer.model import TransformerModel
from joulewise.workload.transformer.parameters import parameter_parts
from joulewise.workload.transformer.setup import TrainingSetup

_WORDS = {
    "flop_count": "FLOPs",
    "traffic_bytes": "bytes",
    "wait_s": "seconds of waiting",
    "gpu_count": "GPUs",
    "node_gpu_count": "GPUs in one node",
    "token_count": "tokens",
    "parameter_count": "parameters",
    "model_flop_count": "FLOPs of the model",
    "kernel_flop_count": "FLOPs of its kernels",
}


def largest_part(model: TransformerModel) -> str:
    """The option that most of the model's parameters hang on."""
    parts = parameter_parts(model)
    return _largest(
        {
            "vocab": parts.embedding_count + parts.output_count,
            "hidden": parts.layer_count * parts.layer_attention_count,
            "ffn": parts.layer_count * parts.layer_ffn_count,
        }
    )


def check_gap(gap_s: float) -> None:
    """Refuse a gap too short to be one. Raises InputError naming `gap_ms`."""
    if 0 < gap_s < LEAST_WAIT_S:
        raise InputError(
            f"a gap of {gap_s:g} s is shorter than anything that can be told",
            field="gap_ms",
            hint=f"Give at least {LEAST_WAIT_S * 1000:g} ms, or 0 for no gap.",
        )


def check_built_size(size: IterationSize, model: TransformerModel, setup: TrainingSetup) -> None:
    """Refuse a job that no file can hold. Raises InputError naming its largest option."""
    degrees = {
        "dp": setup.data_parallel_count,
        "tp": setup.tensor_parallel_count,
        "pp": setup.pipeline_parallel_count,
    }
    tokens = {
        "batch": setup.batch_count,
        "seq": setup.sequence_count,
        "micro": setup.micro_batch_count,
        "dp": setup.data_parallel_count,
    }
    options = {
        "gpu_count": _largest(degrees),
        "node_gpu_count": "node_gpus",
        "parameter_count": largest_part(model),
    }
    for name, (_, most) in SIZE_BOUNDS.items():
        value: float | None = getattr(size, name)
        if value is not None and value > most:
            raise InputError(
                f"the job has {value:.3g} {_WORDS[name]}, more than {most:g}",
                field=options.get(name) or _largest(tokens),
                hint="Build what is really run.",
            )


def check_built_works(
    works: Iterable[KernelWork], model: TransformerModel, setup: TrainingSetup
) -> None:
    """Refuse launches beyond all GPUs, and those that do nothing. Raises InputError."""
    for work in works:
        for name in ("flop_count", "traffic_bytes", "wait_s"):
            value, most = getattr(work, name), WORK_BOUNDS[name][1]
            if value > most:
                raise InputError(
                    f"one launch of {work.kernel} takes {value:.3g} {_WORDS[name]}, more than "
                    f"{most:g}",
                    field=_option_of(work, name, model, setup),
                    hint="Build what one GPU really runs: smaller batches, shorter gaps.",
                )
        if is_idle(work):
            raise InputError(
                f"one launch of {work.kernel} has less than a FLOP and a byte to do on each GPU",
                field="tp",
                hint="Split the model over fewer GPUs.",
            )


def _option_of(work: KernelWork, name: str, model: TransformerModel, setup: TrainingSetup) -> str:
    """The option to change where a launch is too large."""
    if work.kind is KernelKind.GAP:
        return "gap_ms"
    if name == "wait_s" and setup.link_bytes_per_s is not None:
        return "link_gb_per_s"
    factors = {
        "batch": setup.batch_count,
        "seq": setup.sequence_count,
        "hidden": model.hidden_count,
        "ffn": model.ffn_count,
        "vocab": model.vocabulary_count,
    }
    return _largest(factors)


def _largest(options: Mapping[str, int]) -> str:
    """The option of the largest number, the first of several."""
    return max(options, key=lambda name: options[name])
