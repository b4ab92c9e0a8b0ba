"""`joulewise workload list|show|build`, and `hf:PATH` wherever a workload is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from inline_snapshot import snapshot

from joulewise.store.documents import read_plan, read_workload, write_workload
from joulewise.workload.builtin import builtin_names
from tests.cli.conftest import Joulewise, Said
from tests.traced_workloads import traced_workload

DOCS = Path(__file__).resolve().parents[2] / "docs"
CONFIG = DOCS / "examples" / "config.json"
RESULT = json.loads((DOCS / "schemas" / "result.json").read_text("utf-8"))
TINY = ("--layers", "2", "--hidden", "256", "--heads", "4", "--ffn", "512", "--vocab", "1000")
TINY_TEXT = "gpt2,seq=128,layers=2,hidden=256,heads=4,ffn=512,vocab=1000"
QUICK = ("--sm-clocks", "auto,1680", "--mem-clocks", "auto", "--json")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The example of the docs, where its path is short."""
    (tmp_path / "config.json").write_bytes(CONFIG.read_bytes())
    return Path("config.json")


def assert_result(said: Said) -> dict[str, object]:
    assert (0, "") == (said.code, said.err)
    shape = {**RESULT, "anyOf": [{"$ref": "#/$defs/CommandResult"}]}
    jsonschema.Draft202012Validator(shape).validate(said.document)
    return said.document


def test_every_builtin_workload_is_listed_with_what_it_is(joulewise: Joulewise) -> None:
    document = assert_result(joulewise("workload", "list", "--json"))

    lines = json.loads(json.dumps(document["workloads"]))
    assert list(builtin_names()) == [line["workload"] for line in lines]
    assert all(line["description"] for line in lines)
    text = joulewise("workload", "list").out
    assert "llama3-8b" in text
    assert "hf:PATH" in text


def test_a_traced_workload_shows_what_the_profiler_saw(joulewise: Joulewise) -> None:
    write_workload(traced_workload(), Path("workload.json"))

    said = joulewise("workload", "show", "workload.json")

    assert (0, "") == (said.code, said.err)
    assert said.out == snapshot("""\
kernel      pass           launches      time   share        FLOPs
gemm        fwd+bwd               2  500.0 µs  55.6 %  12.00\u202fGFLOP
adam        optimizer             1  200.0 µs  22.2 %  1.000\u202fMFLOP
all-reduce  communication         1  200.0 µs  22.2 %

Passes, share of the kernels' time:
forward        █████                      22.2 %  200.0 µs
backward       ████████                   33.3 %  300.0 µs
optimizer      █████                      22.2 %  200.0 µs
communication  █████                      22.2 %  200.0 µs
Share of the iteration, which takes 1.000 ms:
gaps                                      20.0 %  200.0 µs without any kernel
overlap                                   10.0 %  100.0 µs with several kernels

GPUs             8
GPUs in one node 8
tokens           4\u202f096 on all GPUs
kernel FLOPs     96.00\u202fGFLOP on all GPUs
profiler         PyTorch profiler
file             trace.json
GPU              0 (NVIDIA A100-SXM4-80GB)
rank             0 of 8, from 0
iteration        ProfilerStep#3, one of 3
whole file       12 kernel launches, 2.700\u202fms

Caveats
  StreamsMerged: 1 region, 40 % of the time
    Kernels that ran at the same time share one clock, so they are planned as one. Nothing to mend:
    a region is measured and set as a whole.
  OtherGpusLeftOut: 7 others
    The iteration is that of one GPU; others may work more, and wait for each other. Import them.

One iteration of traced takes 1.000\u202fms on NVIDIA A100-SXM4-80GB (traced): 4 launches of 3 kernels,
33\u202f% of their time in the backward pass; for 20.0\u202f% of it no kernel runs.
""")


def test_a_built_workload_shows_work_and_on_a_device_times(joulewise: Joulewise) -> None:
    bare = assert_result(joulewise("workload", "show", TINY_TEXT, "--json"))
    device = "virtual:a100-sxm"
    timed = assert_result(joulewise("workload", "show", TINY_TEXT, "--device", device, "--json"))

    assert (None, None) == (bare["time_s"], bare["iteration_time_s"])
    assert bare["flop_count"] == timed["flop_count"]
    assert ("simulated", "NVIDIA A100-SXM4") == (timed["time_source"], timed["device_name"])
    assert 0 < float(str(timed["iteration_time_s"]))
    kinds = [one["kind"] for one in json.loads(json.dumps(timed["caveats"]))]
    assert ["EfficiencyAssumed", "SimulatedDevice"] == kinds


def test_times_on_a_device_are_those_that_a_noise_free_sweep_measures(
    joulewise: Joulewise,
) -> None:
    device = "virtual:rtx3080ti,noise=0"
    shown = assert_result(joulewise("workload", "show", TINY_TEXT, "--device", device, "--json"))
    joulewise("measure", "--workload", TINY_TEXT, "--device", device, "--out", "s.csv", *QUICK)
    planned = joulewise(
        "plan", "s.csv", "--workload", TINY_TEXT, "--no-guard", "--json", "--out", "p.json"
    )

    assert 0 == planned.code, planned.out
    plan = read_plan(Path("p.json"))
    assert plan.baseline_time_s == pytest.approx(float(str(shown["time_s"])), rel=2e-2)
    assert plan.baseline_energy_j == pytest.approx(float(str(shown["energy_j"])), rel=5e-2)


def test_the_page_of_a_workload_is_written_whole_and_never_over_the_workload(
    joulewise: Joulewise,
) -> None:
    write_workload(traced_workload(), Path("workload.json"))

    said = joulewise("workload", "show", "workload.json", "--html", "page.html")
    over = joulewise("workload", "show", "workload.json", "--html", "workload.json")

    assert "Page: page.html" in said.out
    assert Path("page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert 1 == over.code
    assert traced_workload() == read_workload(Path("workload.json"))


def test_building_says_parameters_memory_and_work(joulewise: Joulewise) -> None:
    said = joulewise("workload", "build", "gpt2", "--seq", "128", *TINY, "--batch", "2")

    assert (0, "") == (said.code, said.err)
    assert said.out == snapshot("""\
kernel                                 pass      launches        FLOPs     bytes  FLOP/byte
gemm_qkv                               forward          2  201.3\u202fMFLOP  1.835\u202fMB        110
gemm_qkv_input_gradient                backward         2  201.3\u202fMFLOP  1.835\u202fMB        110
gemm_qkv_weight_gradient               backward         2  201.3\u202fMFLOP  1.835\u202fMB        110
gemm_feedforward_up                    forward          2  134.2\u202fMFLOP  1.311\u202fMB        102
gemm_feedforward_down                  forward          2  134.2\u202fMFLOP  1.311\u202fMB        102
gemm_feedforward_down_input_gradient   backward         2  134.2\u202fMFLOP  1.311\u202fMB        102
gemm_feedforward_down_weight_gradient  backward         2  134.2\u202fMFLOP  1.311\u202fMB        102
gemm_feedforward_up_input_gradient     backward         2  134.2\u202fMFLOP  1.311\u202fMB        102
gemm_feedforward_up_weight_gradient    backward         2  134.2\u202fMFLOP  1.311\u202fMB        102
gemm_logits                            forward          1  131.1\u202fMFLOP  1.155\u202fMB        113
gemm_logits_input_gradient             backward         1  131.1\u202fMFLOP  1.155\u202fMB        113
gemm_logits_weight_gradient            backward         1  131.1\u202fMFLOP  1.155\u202fMB        113
flash_attention_gradient               backward         2  84.54\u202fMFLOP  1.851\u202fMB       45.7
gemm_attention_output                  forward          2  67.11\u202fMFLOP  786.4\u202fkB       85.3
gemm_attention_output_input_gradient   backward         2  67.11\u202fMFLOP  786.4\u202fkB       85.3
… and 17 more kernels

Passes, share of all FLOPs:
forward        ████████                   32.8 %  709.4\u202fMFLOP
backward       ████████████████           66.1 %  1.431\u202fGFLOP
optimizer                                  1.1 %  23.59\u202fMFLOP

GPUs             1
tokens           256
parameters       1\u202f572\u202f864
model FLOPs      2.205\u202fGFLOP
kernel FLOPs     2.122\u202fGFLOP
matrices in      bf16

parameters
embedding                  518\u202f144
attention x 2 layers       526\u202f336
feed-forward x 2 layers    525\u202f824
norms x 2 layers             2\u202f048
final norm                     512
all                      1\u202f572\u202f864

memory of one GPU, estimated
weights                       3.146\u202fMB
gradients                     3.146\u202fMB
optimizer                     18.87\u202fMB
activations                   3.658\u202fMB
all                           28.82\u202fMB

Caveats
  EfficiencyAssumed: kernels reach what those of GPT-3 XL, fitted to an RTX 3080 Ti, reach of a
  GPU's peaks; flash attention reaches what was published of an A100
    What kernels reach of a GPU's peaks decides how long they take at other clocks. Import a profile
    of the job to see what its kernels reach, and what overlaps.

One iteration of gpt2,batch=2,seq=128,layers=2,hidden=256,heads=4,ffn=512,vocab=1000: 60 launches of
32 kernels, 2.164\u202fGFLOP and 79.22\u202fMB of traffic on each GPU. Written to workload.json.
""")


def test_what_is_built_from_flags_is_what_the_text_form_says(joulewise: Joulewise) -> None:
    flags = ("--seq", "128", "--dtype", "fp16", "--recompute", "full", "--optimizer", "sgd", *TINY)
    document = assert_result(joulewise("workload", "build", "gpt2", *flags, "--json"))

    built = read_workload(Path("workload.json"))
    shown = assert_result(joulewise("workload", "show", built.name, "--json"))

    assert built.name == document["name"] == shown["name"]
    for name in ("kernel_count", "launch_count", "flop_count", "traffic_bytes", "size"):
        assert document[name] == shown[name]
    parameters = json.loads(json.dumps(document["parameters"]))
    size = json.loads(json.dumps(document["size"]))
    assert parameters["total_count"] == size["parameter_count"]


def test_a_config_is_built_by_path_and_known_by_hf_everywhere(
    joulewise: Joulewise, config: Path
) -> None:
    text = f"hf:{config},batch=1,seq=128,layers=1"
    built = assert_result(
        joulewise("workload", "build", config, "--seq", "128", "--layers", "1", "--json")
    )
    shown = assert_result(joulewise("workload", "show", text, "--json"))
    assert built["flop_count"] == shown["flop_count"]

    measured = joulewise("measure", "--workload", text, *QUICK, "--out", "sweep.parquet")
    planned = joulewise("plan", "sweep.parquet", "--workload", text, "--out", "plan.json", "--json")
    # The plan names its workload, so that nothing more has to be said.
    verified = joulewise("verify", "plan.json", "--pairs", "2", "--json")

    for said in (measured, planned, verified):
        assert 0 == said.code, said.out
    assert read_plan(Path("plan.json")).workload.startswith("hf:config.json,")


def test_a_sweep_of_one_batch_size_of_a_config_is_not_planned_as_another(
    joulewise: Joulewise, config: Path
) -> None:
    text = f"hf:{config},seq=128,layers=1"
    joulewise("measure", "--workload", text, *QUICK, "--out", "sweep.parquet")

    said = joulewise("plan", "sweep.parquet", "--workload", f"{text},batch=2", "--json")

    assert 1 == said.code
    assert "not of" in str(said.document["message"])


def test_of_experts_it_says_how_many_parameters_a_token_meets(joulewise: Joulewise) -> None:
    flags = (*TINY, "--kv-heads", "4", "--seq", "128", "--dp", "4", "--node-gpus", "2")
    document = assert_result(joulewise("workload", "build", "mixtral-8x7b", *flags, "--json"))
    said = joulewise("workload", "build", "mixtral-8x7b", *flags)

    parameters = json.loads(json.dumps(document["parameters"]))
    idle = 2 * 6 * 3 * 256 * 512  # two layers, six of eight experts, three matrices of each
    assert parameters["total_count"] - idle == parameters["active_count"]
    active = f"{parameters['active_count']:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    (line,) = [line for line in said.out.splitlines() if line.startswith("for one token ")]
    assert line.endswith(f" {active}")
    assert "GPUs in one node 2" in said.out


def test_a_decoder_can_be_given_by_its_sizes_alone(joulewise: Joulewise) -> None:
    document = assert_result(joulewise("workload", "build", *TINY, "--seq", "128", "--json"))

    assert str(document["name"]).startswith("decoder,")


def complaint(said: Said) -> str:
    assert 1 == said.code
    assert 1 == said.err.count("error: ")
    return said.err.strip()


def test_wrong_workloads_and_shapes_are_refused_with_one_sentence(
    joulewise: Joulewise, config: Path
) -> None:
    Path("bad.json").write_text('{"model_type": "llama", "hidden_size": -1}', encoding="utf-8")
    cases = {
        "unknown name": ("show", "no-such-model"),
        "unknown option": ("show", "gpt2,speed=9"),
        "no path": ("show", "hf:"),
        "missing config": ("show", "hf:nowhere/config.json"),
        "bad config": ("show", "hf:bad.json"),
        "config as a workload": ("show", config),
        "a real GPU": ("show", "gpt2", "--device", "nvml:0"),
        "unknown model": ("build", "no-such-model"),
        "not built from a shape": ("build", "gpt3-xl"),
        "nothing named": ("build", "--layers", "2"),
        "nothing at all": ("build",),
        "heads that do not divide": ("build", "gpt2", "--heads", "7"),
        "text for a number": ("build", "gpt2", "--batch", "many"),
        "given twice": ("build", "gpt2,batch=2", "--batch", "4"),
        "over its config": ("build", config, "--out", config),
    }

    said = {name: complaint(joulewise("workload", *arguments)) for name, arguments in cases.items()}

    assert said == snapshot(
        {
            "unknown name": """\
error: field 'workload': 'no-such-model' is neither a built-in workload nor a file
hint: Built in: gpt3-xl|125m|350m|760m|1.3b|2.7b|6.7b|13b|175b, gpt2, gpt2-medium|large|xl, llama3-8b|70b, llama3.1-405b, llama3.2-1b|3b, qwen3-0.6b|1.7b|4b|8b|14b|32b|30b-a3b, mistral-7b, mixtral-8x7b, bert-base|large, pythia-70m|160m|410m|1b|1.4b|2.8b|6.9b|12b. A workload file is JSON.\
""",
            "unknown option": """\
error: field 'workload': 'speed=9' is not an option of a transformer
hint: Options: batch=, seq=, dtype=, mode=, optimizer=, recompute=, attention=, lora=, zero=, dp=, tp=, pp=, stage=, micro=, gap_ms=, link_gb_per_s=, node_gpus=, layers=, hidden=, heads=, kv_heads=, ffn=, vocab=.\
""",
            "no path": """\
error: field 'workload': 'hf:' names no file
hint: Write hf: and the path of a config.json, as in hf:model/config.json,batch=2.\
""",
            "missing config": """\
error: nowhere/config.json: there is no such file
hint: Check the path.\
""",
            "bad config": """\
error: bad.json, field 'hidden_size': this must be between 1 and 1,048,576, not -1
hint: Check its digits.\
""",
            "config as a workload": """\
error: config.json: this is a config.json of Hugging Face, not a workload
hint: Give it to --workload as hf:config.json.\
""",
            "a real GPU": """\
error: field 'device': 'nvml:0' does not name a virtual device
hint: Write virtual:NAME or virtual:NAME,option=value, as in virtual:rtx3080ti,noise=0,seed=7; `joulewise devices` lists the names.\
""",
            "unknown model": """\
error: field 'workload': 'no-such-model' is neither a built-in transformer nor a config.json
hint: See `joulewise workload list`; or give --layers, --hidden, --heads, --ffn, --vocab.\
""",
            "not built from a shape": """\
error: field 'workload': gpt3-xl is a list of kernels, not built from a shape
hint: It is a workload as it stands; of a like shape is gpt3-1.3b.\
""",
            "nothing named": """\
error: field 'hidden': a model without a name needs all its sizes
hint: Add --hidden, --heads, --ffn, --vocab; or name a model: see `joulewise workload list`.\
""",
            "nothing at all": """\
error: field 'layers': a model without a name needs all its sizes
hint: Add --layers, --hidden, --heads, --ffn, --vocab; or name a model: see `joulewise workload list`.\
""",
            "heads that do not divide": """\
error: field 'heads': 7 heads do not divide a hidden size of 768
hint: Give both hidden and heads.\
""",
            "text for a number": """\
error: field 'workload': batch must be a whole number, got 'many'
hint: batch: sequences in a micro-batch of one data-parallel rank.\
""",
            "given twice": """\
error: field 'workload': batch is given twice
hint: Keep one.\
""",
            "over its config": """\
error: config.json: this file is read here, so it is not written over
hint: Choose another place for the result.\
""",
        }
    )
    assert not Path("workload.json").exists()
    assert CONFIG.read_bytes() == config.read_bytes()


def test_a_kernel_without_work_cannot_be_shown_on_a_device(joulewise: Joulewise) -> None:
    Path("bare.json").write_text(
        '{"schema_version": 1, "name": "bare", "launches": [{"kernel": "a", "repeat": 3}]}',
        encoding="utf-8",
    )

    assert "3 launches of 1 kernel" in joulewise("workload", "show", "bare.json").out
    said = joulewise("workload", "show", "bare.json", "--device", "virtual:rtx3080ti")

    assert "does not say what kernel 'a' computes" in complaint(said)
