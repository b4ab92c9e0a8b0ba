"""Fine-tuning jobs of arXiv 2607.05933: nine models, three tasks to learn from, six unseen.

Published are the families (BERT Small to xLarge, Pythia 31M to 1B), the names of the tasks, the
three that the policy was trained on, FP32, full fine-tuning with AdamW, dynamic padding, and
batches of 512 or 256, 128 and 16 for models of three sizes. Assumed are which batch goes with
which model, and the numbers of tokens (see `TASKS`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from joulewise.domain.errors import InputError
from joulewise.domain.finetuning import JobFeatures, ModelType
from joulewise.workload.transformer.model import Head, TransformerModel
from joulewise.workload.transformer.parameters import parameter_count
from joulewise.workload.transformer.presets import preset_model

_SMALL_PARAMETER_COUNT, _BASE_PARAMETER_COUNT = 75_000_000, 200_000_000
# Lengths of the examples of a task scatter by half of their mean: assumed.
_LENGTH_SPREAD_RATIO = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A GLUE task: tokens of a training example in the mean, and how many examples there are.

    `longest_sequence_count` is where the scripts cut examples off.
    """

    name: str
    mean_sequence_count: float
    example_count: int
    longest_sequence_count: int
    is_unseen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """A model, the task that it is fine-tuned on, and the examples of one training step."""

    model: TransformerModel
    task: Task
    batch_count: int

    @property
    def name(self) -> str:
        """`model/task`, which is also the name of the kernel that stands for one step."""
        return f"{self.model.name}/{self.task.name}"

    @property
    def padded_sequence_count(self) -> int:
        """Tokens of every example of a batch, which is padded to its longest one.

        The longest of n log-normal lengths as it is in the middle: the largest of n normal values
        lies at the quantile (n - 3/8) / (n + 1/4) (Blom 1958). DataCollatorWithPadding of the
        published scripts pads to it.
        """
        sigma = math.sqrt(math.log(1.0 + _LENGTH_SPREAD_RATIO**2))
        score = _largest_normal_score(self.batch_count)
        longest = self.task.mean_sequence_count * math.exp(sigma * score - sigma**2 / 2)
        return round(min(self.task.longest_sequence_count, longest))

    @property
    def step_count(self) -> int:
        """Training steps of one epoch."""
        return math.ceil(self.task.example_count / self.batch_count)

    @property
    def parameter_count(self) -> int:
        """Weights that are trained: the model without its language-model head."""
        return parameter_count(self.model)

    @property
    def features(self) -> JobFeatures:
        """What is known before the job runs; nobody has looked at its utilisation."""
        return JobFeatures(
            model_type=ModelType.DECODER if self.model.is_causal else ModelType.ENCODER,
            layer_count=self.model.layer_count,
            hidden_count=self.model.hidden_count,
            mean_sequence_count=self.task.mean_sequence_count,
            parameter_count=self.parameter_count,
        )


def _fine_tuned(model: TransformerModel, name: str | None = None) -> TransformerModel:
    """The model as a classifier: a pooler or the last token's state instead of the LM head."""
    return replace(
        model, name=name or model.name, head=Head.NONE, has_head_bias=False, is_tied=False
    )


def _bert(name: str, layers: int, hidden: int, *, vocabulary: int = 30_522) -> TransformerModel:
    """A BERT of another size: heads of 64, feed-forward parts four times as wide."""
    heads = hidden // 64
    shape = replace(
        preset_model("bert-base"),
        layer_count=layers,
        hidden_count=hidden,
        head_count=heads,
        kv_head_count=heads,
        ffn_count=4 * hidden,
        vocabulary_count=vocabulary,
    )
    return _fine_tuned(replace(shape, has_pooler=True), name)


def _pythia_small(name: str, layers: int, hidden: int, heads: int) -> TransformerModel:
    shape = replace(
        preset_model("pythia-70m"),
        layer_count=layers,
        hidden_count=hidden,
        head_count=heads,
        kv_head_count=heads,
        head_width_count=hidden // heads,
        ffn_count=4 * hidden,
    )
    return _fine_tuned(shape, name)


def _by_name(*models: TransformerModel) -> Mapping[str, TransformerModel]:
    return MappingProxyType({model.name: model for model in models})


MODELS: Mapping[str, TransformerModel] = _by_name(
    _bert("bert-small", 4, 512),
    _bert("bert-base", 12, 768),
    _bert("bert-large", 24, 1024),
    _bert("bert-xlarge", 24, 1536, vocabulary=128_100),
    _pythia_small("pythia-31m", 6, 256, 8),
    _fine_tuned(preset_model("pythia-70m")),
    _fine_tuned(preset_model("pythia-160m")),
    _fine_tuned(preset_model("pythia-410m")),
    _fine_tuned(preset_model("pythia-1b")),
)
"""The nine models, without their language-model heads.

BERT base and large: arXiv 1810.04805; small: Turc et al., arXiv 1908.08962 (4 layers of 512);
xlarge has the shape of DeBERTa-v2-xlarge (arXiv 2006.03654 and its published config.json), whose
further products for relative positions are left out. Pythia: arXiv 2304.01373; 31M from its
published config.json.
"""


def _task(name: str, mean: float, examples: int, longest: int, *, is_unseen: bool) -> Task:
    return Task(
        name=name,
        mean_sequence_count=mean,
        example_count=examples,
        longest_sequence_count=longest,
        is_unseen=is_unseen,
    )


TASKS: Mapping[str, Task] = MappingProxyType(
    {
        task.name: task
        for task in (
            _task("sst2", 14.0, 67_349, 128, is_unseen=False),
            _task("qnli", 51.0, 104_743, 256, is_unseen=False),
            _task("mrpc", 55.0, 3_668, 256, is_unseen=False),
            _task("qqp", 31.0, 363_846, 256, is_unseen=True),
            _task("rte", 68.0, 2_490, 256, is_unseen=True),
            _task("cola", 11.0, 8_551, 128, is_unseen=True),
            _task("stsb", 31.0, 5_749, 256, is_unseen=True),
            _task("mnli", 40.0, 392_702, 256, is_unseen=True),
            _task("wnli", 37.0, 635, 256, is_unseen=True),
        )
    }
)
"""The nine tasks of GLUE (arXiv 1804.07461), whose table 1 has the numbers of examples.

Mean lengths are approximate. The published tree splits at 32.5 and 53.0 tokens, which are the
middles of 14 and 51 and of 51 and 55: the means of SST-2, QNLI and MRPC are inferred from that.
Examples are cut at 128 (SST-2) and 256 tokens (QNLI) in the paper's scripts; the other limits
are taken to be alike.
"""


def job_names() -> tuple[str, ...]:
    """Names that `job` takes: all models on the training tasks, then on the unseen ones."""
    return tuple(one.name for one in (*training_jobs(), *unseen_jobs()))


def job(name: str) -> TrainingJob:
    """The job called `model/task`. Raises InputError naming the known models and tasks."""
    model, _, task = name.partition("/")
    if model not in MODELS or task not in TASKS:
        raise InputError(
            f"no fine-tuning job is called {name!r}",
            field="job",
            hint=f"Write MODEL/TASK, as in bert-base/qnli. Models: {', '.join(MODELS)}. "
            f"Tasks: {', '.join(TASKS)}.",
        )
    return job_of(MODELS[model], TASKS[task])


def job_of(model: TransformerModel, task: Task) -> TrainingJob:
    """The model on the task, with the batch that goes with its size."""
    return TrainingJob(model=model, task=task, batch_count=_batch_count(parameter_count(model)))


@functools.cache
def training_jobs() -> tuple[TrainingJob, ...]:
    """The 27 jobs that policies learn from: every model on SST-2, QNLI and MRPC."""
    return _jobs(is_unseen=False)


@functools.cache
def unseen_jobs() -> tuple[TrainingJob, ...]:
    """The 54 jobs that no policy has seen: every model on the six other tasks."""
    return _jobs(is_unseen=True)


def _jobs(*, is_unseen: bool) -> tuple[TrainingJob, ...]:
    tasks = [task for task in TASKS.values() if task.is_unseen is is_unseen]
    return tuple(job_of(model, task) for model in MODELS.values() for task in tasks)


def _batch_count(parameters: int) -> int:
    if parameters <= _SMALL_PARAMETER_COUNT:
        return 256
    return 128 if parameters <= _BASE_PARAMETER_COUNT else 16


def _largest_normal_score(count: int) -> float:
    """How many standard deviations the largest of so many normal values lies above their mean."""
    from statistics import NormalDist  # noqa: PLC0415 - only where lengths are padded

    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
