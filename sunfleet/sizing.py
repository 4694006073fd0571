"""Whether a model can be cut over a number of devices, from its `config.json`: known before any GPU is taken.

The rules and their wording are vLLM's own (0.33: `ModelConfig.verify_with_parallel_config`, `divide`, the block
FP8 linear and fused MoE methods), so that a refusal here reads like the one that an engine would die with. What a
configuration does not say is not checked: unknown is not wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_KV_HEADS = ("n_head_kv", "num_kv_heads", "num_key_value_heads", "multi_query_group_num", "num_attention_groups")
_EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What tensor parallelism divides. 0 is unknown, or not there."""

    heads: int
    kv_heads: int  # 0 for multi-head latent attention, whose cache every rank holds whole
    experts: int
    intermediate: int  # of dense layers; of each expert when there is no width of their own
    expert_intermediate: int
    shared_intermediate: int  # of the shared expert
    block: int  # rows per scale of block-wise FP8 weights


def architecture(config: dict[str, Any]) -> Architecture:
    """Read a Hugging Face `config.json`; of a multimodal model, its text part."""
    text = _text(config)
    heads = _first(text, _HEADS)
    return Architecture(
        heads=heads,
        kv_heads=0 if _number(text, "kv_lora_rank") else _kv_heads(text, heads),
        experts=_first(text, _EXPERTS),
        intermediate=_number(text, "intermediate_size"),
        expert_intermediate=_number(text, "moe_intermediate_size"),
        shared_intermediate=_number(text, "shared_expert_intermediate_size"),
        block=_block(config, text),
    )


def tp_problems(config: dict[str, Any], tensor: int) -> tuple[str, ...]:
    """Why vLLM would not start the model at a tensor parallel size, or nothing."""
    if tensor <= 1:
        return ()
    found = architecture(config)
    return (*_head_problems(found, tensor), *_width_problems(found, tensor), *_block_problems(found, tensor))


def _head_problems(found: Architecture, tensor: int) -> list[str]:
    problems = []
    if found.heads % tensor:
        problems.append(
            f"Total number of attention heads ({found.heads}) must be divisible by tensor parallel size ({tensor})."
        )
    kv = found.kv_heads
    if kv and (tensor % kv if tensor >= kv else kv % tensor):
        # vLLM dies with an empty AssertionError here: these words are ours
        problems.append(
            f"Total number of key/value heads ({kv}) and tensor parallel size ({tensor}) must divide evenly."
        )
    return problems


def _width_problems(found: Architecture, tensor: int) -> list[str]:
    """Fused expert kernels pad a width that is only called intermediate_size."""
    dense = 0 if found.experts else found.intermediate
    widths = (dense, found.expert_intermediate, found.shared_intermediate)
    return [f"{width} is not divisible by {tensor}" for width in widths if width % tensor]


def _block_problems(found: Architecture, tensor: int) -> list[str]:
    """A part of a layer holds whole blocks of scales. What does not divide at all is told above."""
    if not found.block:
        return []
    lone = found.experts > 0 and not found.expert_intermediate
    dense = (0 if lone else found.intermediate, found.shared_intermediate)
    fused = (found.intermediate if lone else found.expert_intermediate,)
    tail = f"is not divisible by weight quantization block_n = {found.block}."
    return [
        *(f"Weight output_partition_size = {part} {tail}" for part in _ragged(dense, tensor, found.block)),
        *(f"The output_size of gate's and up's weight = {part} {tail}" for part in _ragged(fused, tensor, found.block)),
    ]


def _ragged(widths: tuple[int, ...], tensor: int, block: int) -> list[int]:
    return [width // tensor for width in widths if width % tensor == 0 and width // tensor % block]


def _text(config: dict[str, Any]) -> dict[str, Any]:
    """The language model's own part."""
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, dict) and inner:
            return _text(inner)
    return config


def _kv_heads(text: dict[str, Any], heads: int) -> int:
    """Key/value heads; as many as heads unless told otherwise. The first Falcons share one and do not count it."""
    if text.get("multi_query") is True and not text.get("new_decoder_architecture"):
        return 1
    return _first(text, _KV_HEADS) or heads


def _block(config: dict[str, Any], text: dict[str, Any]) -> int:
    """Output rows of one FP8 block; 0 when weights are not quantized block by block."""
    for part in (config, text):
        quantization = part.get("quantization_config")
        sizes = quantization.get("weight_block_size") if isinstance(quantization, dict) else None
        if isinstance(sizes, list) and sizes and isinstance(sizes[0], int):
            return max(0, sizes[0])
    return 0


def _first(block: dict[str, Any], keys: tuple[str, ...]) -> int:
    return next((n for n in (_number(block, key) for key in keys) if n), 0)


def _number(block: dict[str, Any], key: str) -> int:
    """A count; 0 when it is missing, or is nothing that can be counted (a list by layer, a string)."""
    value = block.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
