"""Fine-tunes a tiny BERT of random weights on random tokens: nothing is downloaded.

    joulewise finetune run --device jetson -- python finetune_bert.py --steps 2000

With `accelerate` installed the trainer of Transformers runs it, and `JoulewiseCallback` marks its
steps; without, or with `--loop`, a loop of one's own does, and `StepMarker` marks them. Started
without joulewise it trains as it always did.
"""

from __future__ import annotations

import argparse
import sys
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.utils import is_accelerate_available

from joulewise.integrations.step_marks import StepMarker
from joulewise.integrations.transformers_callback import JoulewiseCallback

VOCABULARY_COUNT = 128
SEQUENCE_COUNT = 16
BATCH_COUNT = 4


def tiny_bert() -> BertForSequenceClassification:
    """Two layers of 32, and a head of two classes."""
    config = BertConfig(
        vocab_size=VOCABULARY_COUNT,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=SEQUENCE_COUNT,
    )
    return BertForSequenceClassification(config)


def examples(count: int) -> list[dict[str, torch.Tensor]]:
    """Random tokens; the label is whether the first one is even."""
    tokens = torch.randint(0, VOCABULARY_COUNT, (count, SEQUENCE_COUNT))
    return [{"input_ids": row, "labels": row[0] % 2} for row in tokens]


def with_loop(step_count: int) -> int:
    """A loop of one's own: `begin`, then `step` after each optimizer step, until `is_over`."""
    model = tiny_bert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    marker = StepMarker.from_environment()
    marker.begin(planned_count=step_count)
    while marker.step_count < step_count and not marker.is_over:
        batch = torch.utils.data.default_collate(examples(BATCH_COUNT))
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        marker.step()
    return marker.step_count


def with_trainer(step_count: int) -> int:
    """The trainer of Transformers: one more callback, and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=tiny_bert(),
            args=TrainingArguments(
                output_dir=folder,
                max_steps=step_count,
                per_device_train_batch_size=BATCH_COUNT,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=examples(BATCH_COUNT * 64),
            callbacks=[JoulewiseCallback()],
        )
        return int(trainer.train().global_step)


def main() -> None:
    """Train so many steps, or as many as joulewise asks for."""
    parser = argparse.ArgumentParser(description="Fine-tune a tiny BERT of random weights.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--loop", action="store_true", help="a loop of one's own")
    asked = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = with_trainer if is_accelerate_available() and not asked.loop else with_loop
    sys.stdout.write(f"trained {train(asked.steps)} steps\n")


if __name__ == "__main__":
    main()
