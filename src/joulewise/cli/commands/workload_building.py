"""`joulewise workload build`: a workload from the shape of a transformer."""

from __future__ import annotations

import msgspec
from rich.console import Console

from joulewise.cli.options import AsJson, FailOn
from joulewise.cli.outcome import Outcome, finish
from joulewise.cli.render import print_caveats, say, table
from joulewise.cli.values import caveat_kinds
from joulewise.cli.workload_options import (
    DEFAULT_WORKLOAD_FILE,
    AttentionText,
    Batch,
    BuiltName,
    DataParallel,
    DtypeText,
    FeedForward,
    GapMilliseconds,
    Heads,
    Hidden,
    KeyValueHeads,
    Layers,
    LinkBandwidth,
    Lora,
    MicroBatches,
    ModelText,
    ModeText,
    NodeGpus,
    OptimizerText,
    PipelineParallel,
    RecomputeText,
    Sequence,
    Stage,
    TensorParallel,
    Vocabulary,
    WorkloadOut,
    Zero,
)
from joulewise.cli.workload_render import facts_document, print_workload
from joulewise.domain.plan import Status
from joulewise.report.wording import count
from joulewise.report.workload_words import amount, workload_sentence
from joulewise.workflow.workload_building import BuildJob, BuiltWorkload, build_workload_to_file

_TOP_COUNT = 15


def build(
    model: ModelText = None,
    batch: Batch = None,
    seq: Sequence = None,
    dtype: DtypeText = None,
    mode: ModeText = None,
    optimizer: OptimizerText = None,
    recompute: RecomputeText = None,
    attention: AttentionText = None,
    lora: Lora = None,
    zero: Zero = None,
    dp: DataParallel = None,
    tp: TensorParallel = None,
    pp: PipelineParallel = None,
    stage: Stage = None,
    micro: MicroBatches = None,
    gap_ms: GapMilliseconds = None,
    link_gb_per_s: LinkBandwidth = None,
    node_gpus: NodeGpus = None,
    layers: Layers = None,
    hidden: Hidden = None,
    heads: Heads = None,
    kv_heads: KeyValueHeads = None,
    ffn: FeedForward = None,
    vocab: Vocabulary = None,
    name: BuiltName = None,
    out: WorkloadOut = DEFAULT_WORKLOAD_FILE,
    as_json: AsJson = False,
    fail_on: FailOn = None,
) -> None:
    """Build a workload from a model's shape: parameters, FLOPs, bytes, memory, launches."""
    wanted = caveat_kinds(fail_on)
    training = {"batch": batch, "seq": seq, "dtype": dtype, "mode": mode, "optimizer": optimizer}
    ways = {"recompute": recompute, "attention": attention, "lora": lora, "zero": zero}
    split = {"dp": dp, "tp": tp, "pp": pp, "stage": stage, "micro": micro}
    waits = {"gap_ms": gap_ms, "link_gb_per_s": link_gb_per_s, "node_gpus": node_gpus}
    shape = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads}
    given = training | ways | split | waits | shape | {"ffn": ffn, "vocab": vocab}
    options = {option: value for option, value in given.items() if value is not None}
    built = build_workload_to_file(BuildJob(model=model, options=options, name=name, out=out))
    extra = {"workload": str(out), **_document(built)}
    outcome = Outcome(
        status=Status.FEASIBLE,
        render=lambda console: _render(console, built, str(out)),
        caveats=built.caveats,
        extra=extra,
    )
    finish(outcome, as_json=as_json, fail_on=wanted)


def _render(console: Console, built: BuiltWorkload, out: str) -> None:
    print_workload(console, built.facts, _TOP_COUNT)
    console.print()
    console.print(table(None, ("parameters", ""), _parameter_rows(built)))
    console.print()
    console.print(table(None, ("memory of one GPU, estimated", ""), _memory_rows(built)))
    print_caveats(console, built.caveats)
    say(console, f"{workload_sentence(built.facts)} Written to {out}.")


def _parameter_rows(built: BuiltWorkload) -> list[tuple[str, str]]:
    parts = built.parameters
    layers = f"x {parts.layer_count} layers"
    rows = (
        ("embedding", parts.embedding_count),
        (f"attention {layers}", parts.layer_attention_count * parts.layer_count),
        (f"feed-forward {layers}", parts.layer_ffn_count * parts.layer_count),
        (f"norms {layers}", parts.layer_norm_count * parts.layer_count),
        ("final norm", parts.final_norm_count),
        ("pooler", parts.pooler_count),
        ("output", parts.output_count),
        ("all", parts.total_count),
        ("for one token", _count_of_some(built)),
    )
    return [(label, count(number)) for label, number in rows if number]


def _count_of_some(built: BuiltWorkload) -> int:
    """Parameters that one token meets, where those are not all; else 0."""
    active = built.active_parameter_count
    return 0 if active == built.parameters.total_count else active


def _memory_rows(built: BuiltWorkload) -> list[tuple[str, str]]:
    memory = built.memory
    rows = (
        ("weights", memory.weight_bytes),
        ("gradients", memory.gradient_bytes),
        ("optimizer", memory.optimizer_bytes),
        ("activations", memory.activation_bytes),
        ("all", memory.total_bytes),
    )
    return [(label, amount(value, "B")) for label, value in rows if value]


def _document(built: BuiltWorkload) -> dict[str, object]:
    return {
        **facts_document(built.facts, _TOP_COUNT),
        "parameters": {
            **msgspec.to_builtins(built.parameters),
            "total_count": built.parameters.total_count,
            "active_count": built.active_parameter_count,
        },
        "memory": {
            **msgspec.to_builtins(built.memory),
            "total_bytes": built.memory.total_bytes,
        },
    }
