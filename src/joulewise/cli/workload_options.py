"""Options of `joulewise workload build`: the text options of a transformer, as flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joulewise.workload.transformer.huggingface import known_model_types

ModelText = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODEL]",
        help="A built-in transformer, or the config.json of one from Hugging Face (model_type "
        f"{', '.join(known_model_types())}). Without it, a decoder of the sizes given.",
        show_default=False,
    ),
]
Batch = Annotated[
    str | None,
    typer.Option("--batch", metavar="N", help="Sequences in a micro-batch of one rank."),
]
Sequence = Annotated[str | None, typer.Option("--seq", metavar="N", help="Tokens in a sequence.")]
DtypeText = Annotated[
    str | None, typer.Option("--dtype", metavar="DTYPE", help="bf16, fp16, fp32, tf32 or fp8.")
]
ModeText = Annotated[
    str | None,
    typer.Option("--mode", metavar="MODE", help="train, or forward for a forward pass alone."),
]
OptimizerText = Annotated[
    str | None, typer.Option("--optimizer", metavar="NAME", help="adamw, sgd or none.")
]
RecomputeText = Annotated[
    str | None,
    typer.Option(
        "--recompute",
        metavar="WHICH",
        help="Activations that backward computes again: none, selective or full.",
    ),
]
AttentionText = Annotated[
    str | None,
    typer.Option("--attention", metavar="HOW", help="flash, or eager to write scores to memory."),
]
Lora = Annotated[
    str | None,
    typer.Option("--lora", metavar="RANK", help="Rank of adapters on queries and values."),
]
Zero = Annotated[
    str | None, typer.Option("--zero", metavar="STAGE", help="Stage of ZeRO, 0 to 3 (3 is FSDP).")
]
DataParallel = Annotated[
    str | None, typer.Option("--dp", metavar="N", help="Data-parallel degree.")
]
TensorParallel = Annotated[
    str | None,
    typer.Option("--tp", metavar="N", help="Tensor-parallel degree, with sequence parallelism."),
]
PipelineParallel = Annotated[
    str | None, typer.Option("--pp", metavar="N", help="Pipeline-parallel degree.")
]
Stage = Annotated[
    str | None,
    typer.Option("--stage", metavar="N", help="The pipeline stage to build, from 0."),
]
MicroBatches = Annotated[
    str | None, typer.Option("--micro", metavar="N", help="Micro-batches in an iteration.")
]
GapMilliseconds = Annotated[
    str | None,
    typer.Option(
        "--gap-ms",
        metavar="MS",
        help="Milliseconds per iteration in which the GPU waits for its host.",
    ),
]
LinkBandwidth = Annotated[
    str | None,
    typer.Option(
        "--link-gb-per-s",
        metavar="GB/S",
        help="What one GPU sends to others, in one direction.",
    ),
]
NodeGpus = Annotated[
    str | None,
    typer.Option(
        "--node-gpus",
        metavar="N",
        help="GPUs of the job that share one node, for figures per node.",
    ),
]
Layers = Annotated[str | None, typer.Option("--layers", metavar="N", help="Layers of the model.")]
Hidden = Annotated[str | None, typer.Option("--hidden", metavar="N", help="Hidden size.")]
Heads = Annotated[str | None, typer.Option("--heads", metavar="N", help="Attention heads.")]
KeyValueHeads = Annotated[
    str | None, typer.Option("--kv-heads", metavar="N", help="Heads of keys and values.")
]
FeedForward = Annotated[
    str | None,
    typer.Option("--ffn", metavar="N", help="Inner width of the feed-forward part."),
]
Vocabulary = Annotated[
    str | None, typer.Option("--vocab", metavar="N", help="Entries of the vocabulary.")
]
BuiltName = Annotated[
    str | None,
    typer.Option(
        "--name",
        envvar="JOULEWISE_WORKLOAD_NAME",
        help="Name of the workload. Default: the model's, with the options.",
    ),
]
WorkloadOut = Annotated[
    Path,
    typer.Option(
        "--out", envvar="JOULEWISE_WORKLOAD_OUT", help="Where the workload file is written."
    ),
]
DEFAULT_WORKLOAD_FILE = Path("workload.json")
