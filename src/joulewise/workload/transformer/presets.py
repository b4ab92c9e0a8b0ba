"""Published transformers by name: their shapes, and the sequence that they were trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from joulewise.domain.errors import InputError
from joulewise.workload.transformer.model import Activation, Head, Norm, TransformerModel

_GPT2_SOURCE = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners, table 2"
_GPT3_SOURCE = "Brown et al., arXiv 2005.14165, table 2.1"
_BERT_SOURCE = "Devlin et al., arXiv 1810.04805, section 3"
_PYTHIA_SOURCE = "Biderman et al., arXiv 2304.01373, table 1"
_LLAMA3_SOURCE = "Llama 3, arXiv 2407.21783, table 3"
_LLAMA32_SOURCE = "Llama 3.2 (2024-09-25), published config.json"
_MISTRAL_SOURCE = "Jiang et al., arXiv 2310.06825, table 1"
_MIXTRAL_SOURCE = "Jiang et al., arXiv 2401.04088, table 1"
_QWEN3_SOURCE = "Qwen3, arXiv 2505.09388, tables 1 and 2, and the published config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A published model, the tokens of its (pre-)training sequences, and where both are from."""

    model: TransformerModel
    sequence_count: int
    source: str


def preset_names() -> tuple[str, ...]:
    """Names that `preset` takes."""
    return tuple(_PRESETS)


def preset(name: str) -> Preset:
    """The published model of that name. Raises InputError naming the known ones."""
    if name not in _PRESETS:
        raise InputError(
            f"no transformer is called {name!r}",
            field="workload",
            hint=f"Known: {', '.join(_PRESETS)}.",
        )
    return _PRESETS[name]


def preset_model(name: str) -> TransformerModel:
    """The shape of the published model of that name. Raises InputError naming the known ones."""
    return preset(name).model


def default_sequence_count(name: str) -> int:
    """Tokens of the sequences that the model was (pre-)trained on.

    Raises:
        InputError: no such model; names the known ones.
    """
    return preset(name).sequence_count


def _gpt(name: str, layers: int, hidden: int, heads: int, positions: int) -> TransformerModel:
    """GPT-2 and GPT-3: learned positions, tied embeddings, biases everywhere."""
    return TransformerModel(
        name=name,
        layer_count=layers,
        hidden_count=hidden,
        head_count=heads,
        kv_head_count=heads,
        head_width_count=hidden // heads,
        ffn_count=4 * hidden,
        vocabulary_count=50_257,
        position_count=positions,
        norm=Norm.LAYER,
        activation=Activation.GELU,
        is_tied=True,
        has_qkv_bias=True,
        has_attention_output_bias=True,
        has_ffn_bias=True,
    )


def _gpt2(name: str, layers: int, hidden: int, heads: int) -> Preset:
    model = _gpt(name, layers, hidden, heads, 1024)
    return Preset(model=model, sequence_count=1024, source=_GPT2_SOURCE)


def _gpt3(name: str, layers: int, hidden: int, heads: int) -> Preset:
    model = _gpt(name, layers, hidden, heads, 2048)
    return Preset(model=model, sequence_count=2048, source=_GPT3_SOURCE)


def _pythia(name: str, layers: int, hidden: int, heads: int, vocabulary: int) -> Preset:
    """GPT-NeoX blocks; the vocabulary is padded for the tensor parallelism it was trained at."""
    model = replace(
        _gpt(name, layers, hidden, heads, 0),
        vocabulary_count=vocabulary,
        is_tied=False,
        rotary_ratio=0.25,
        is_parallel_block=True,
    )
    return Preset(model=model, sequence_count=2048, source=_PYTHIA_SOURCE)


def _bert(name: str, layers: int, hidden: int, heads: int) -> Preset:
    """BERT with its masked-language-model head, without next-sentence prediction."""
    model = replace(
        _gpt(name, layers, hidden, heads, 512),
        vocabulary_count=30_522,
        token_type_count=2,
        head=Head.MASKED_LANGUAGE_MODEL,
        is_causal=False,
        is_post_norm=True,
        has_embedding_norm=True,
        has_final_norm=False,
        has_head_bias=True,
    )
    return Preset(model=model, sequence_count=512, source=_BERT_SOURCE)


def _llama(
    name: str, layers: int, hidden: int, heads: tuple[int, int], ffn: int, vocabulary: int
) -> TransformerModel:
    """RMS norms, rotary positions, gated feed-forward parts; `heads` of queries and of keys."""
    return TransformerModel(
        name=name,
        layer_count=layers,
        hidden_count=hidden,
        head_count=heads[0],
        kv_head_count=heads[1],
        head_width_count=hidden // heads[0],
        ffn_count=ffn,
        vocabulary_count=vocabulary,
        norm=Norm.RMS,
        activation=Activation.SILU,
        rotary_ratio=1.0,
        is_gated=True,
    )


def _llama3(name: str, layers: int, hidden: int, heads: int, ffn: int) -> Preset:
    """Pre-trained at 8K tokens before the context was lengthened: section 3.4.2."""
    model = _llama(name, layers, hidden, (heads, 8), ffn, 128_256)
    return Preset(model=model, sequence_count=8192, source=_LLAMA3_SOURCE)


def _llama32(name: str, layers: int, hidden: int, heads: int) -> Preset:
    model = replace(_llama(name, layers, hidden, (heads, 8), 8192, 128_256), is_tied=True)
    return Preset(model=model, sequence_count=8192, source=_LLAMA32_SOURCE)


def _qwen3(name: str, layers: int, hidden: int, heads: tuple[int, int], ffn: int) -> Preset:
    """Heads of 128 whatever the hidden size; the small ones tie their embeddings."""
    model = replace(
        _llama(name, layers, hidden, heads, ffn, 151_936),
        head_width_count=128,
        is_tied=name in {"qwen3-0.6b", "qwen3-1.7b", "qwen3-4b"},
        has_qk_norm=True,
    )
    return Preset(model=model, sequence_count=4096, source=_QWEN3_SOURCE)


def _qwen3_moe(name: str, layers: int, hidden: int, heads: tuple[int, int], ffn: int) -> Preset:
    """Every layer has 128 experts of inner width `ffn`, of which each token is sent to 8."""
    dense = _qwen3(name, layers, hidden, heads, ffn)
    return replace(dense, model=replace(dense.model, expert_count=128, active_expert_count=8))


def _mistral() -> Preset:
    """Version 0.1, whose attention looks back on 4096 tokens."""
    model = _llama("mistral-7b", 32, 4096, (32, 8), 14_336, 32_000)
    model = replace(model, window_count=4096)
    return Preset(model=model, sequence_count=8192, source=_MISTRAL_SOURCE)


def _mixtral() -> Preset:
    model = _llama("mixtral-8x7b", 32, 4096, (32, 8), 14_336, 32_000)
    model = replace(model, expert_count=8, active_expert_count=2)
    return Preset(model=model, sequence_count=32_768, source=_MIXTRAL_SOURCE)


_ALL = (
    _gpt2("gpt2", 12, 768, 12),
    _gpt2("gpt2-medium", 24, 1024, 16),
    _gpt2("gpt2-large", 36, 1280, 20),
    _gpt2("gpt2-xl", 48, 1600, 25),
    _gpt3("gpt3-125m", 12, 768, 12),
    _gpt3("gpt3-350m", 24, 1024, 16),
    _gpt3("gpt3-760m", 24, 1536, 16),
    # The table says 24 heads of 128, which are 3072 wide and not 2048; as in llm.c and
    # Megatron-LM, 16 heads of 128 fill the hidden size.
    _gpt3("gpt3-1.3b", 24, 2048, 16),
    _gpt3("gpt3-2.7b", 32, 2560, 32),
    _gpt3("gpt3-6.7b", 32, 4096, 32),
    # The table says a hidden size of 5140, which 40 heads of 128 do not fill: 5120.
    _gpt3("gpt3-13b", 40, 5120, 40),
    _gpt3("gpt3-175b", 96, 12_288, 96),
    _llama3("llama3-8b", 32, 4096, 32, 14_336),
    _llama3("llama3-70b", 80, 8192, 64, 28_672),
    _llama3("llama3.1-405b", 126, 16_384, 128, 53_248),
    _llama32("llama3.2-1b", 16, 2048, 32),
    _llama32("llama3.2-3b", 28, 3072, 24),
    _qwen3("qwen3-0.6b", 28, 1024, (16, 8), 3072),
    _qwen3("qwen3-1.7b", 28, 2048, (16, 8), 6144),
    _qwen3("qwen3-4b", 36, 2560, (32, 8), 9728),
    _qwen3("qwen3-8b", 36, 4096, (32, 8), 12_288),
    _qwen3("qwen3-14b", 40, 5120, (40, 8), 17_408),
    _qwen3("qwen3-32b", 64, 5120, (64, 8), 25_600),
    _qwen3_moe("qwen3-30b-a3b", 48, 2048, (32, 4), 768),
    _mistral(),
    _mixtral(),
    _bert("bert-base", 12, 768, 12),
    _bert("bert-large", 24, 1024, 16),
    _pythia("pythia-70m", 6, 512, 8, 50_304),
    _pythia("pythia-160m", 12, 768, 12, 50_304),
    _pythia("pythia-410m", 24, 1024, 16, 50_304),
    _pythia("pythia-1b", 16, 2048, 8, 50_304),
    _pythia("pythia-1.4b", 24, 2048, 16, 50_304),
    _pythia("pythia-2.8b", 32, 2560, 32, 50_304),
    _pythia("pythia-6.9b", 32, 4096, 32, 50_432),
    _pythia("pythia-12b", 36, 5120, 40, 50_688),
)
_PRESETS = {one.model.name: one for one in _ALL}
