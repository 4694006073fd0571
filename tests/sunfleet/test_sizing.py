"""Which tensor parallel sizes a model can have: by the numbers of real configurations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet.sizing import architecture, tp_problems

Config = dict[str, Any]
POWERS = (1, 2, 4, 8, 16)


def config(heads: int, kv: int | None, intermediate: int, **more: Any) -> Config:
    found: Config = {"num_attention_heads": heads, "intermediate_size": intermediate, **more}
    return found | ({"num_key_value_heads": kv} if kv is not None else {})


def block_fp8(given: Config) -> Config:
    return given | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}


LLAMA_8B = config(32, 8, 14336)
LLAMA_70B = config(64, 8, 28672)
QWEN25_7B = config(28, 4, 18944)
QWEN25_05B = config(14, 2, 4864)
QWEN3_30B = config(32, 4, 6144, num_experts=128, moe_intermediate_size=768)
QWEN3_235B = config(64, 4, 12288, num_experts=128, moe_intermediate_size=1536)
GLM_45 = config(96, 8, 12288, n_routed_experts=160, moe_intermediate_size=1536)
DEEPSEEK_V3 = config(
    128, 128, 18432, n_routed_experts=256, moe_intermediate_size=2048, kv_lora_rank=512, qk_rope_head_dim=64
)
GPT_OSS_20B = config(64, 8, 2880, num_local_experts=32)
FALCON_7B = {"num_attention_heads": 71, "multi_query": True, "new_decoder_architecture": False}
QWEN3_NEXT = config(16, 2, 5120, num_experts=512, moe_intermediate_size=512, shared_expert_intermediate_size=512)
PHI_3_MEDIUM = config(40, 10, 17920)


@pytest.mark.parametrize(
    ("given", "valid"),
    [
        (LLAMA_8B, {1, 2, 4, 8, 16}),
        (block_fp8(LLAMA_8B), {1, 2, 4, 8, 16}),
        (LLAMA_70B, {1, 2, 4, 8, 16}),
        (block_fp8(LLAMA_70B), {1, 2, 4, 8, 16}),
        (QWEN25_7B, {1, 2, 4}),
        (block_fp8(QWEN25_7B), {1, 2, 4}),
        (QWEN25_05B, {1, 2}),
        (block_fp8(QWEN25_05B), {1, 2}),
        (QWEN3_30B, {1, 2, 4, 8, 16}),
        (block_fp8(QWEN3_30B), {1, 2}),
        (QWEN3_235B, {1, 2, 4, 8, 16}),
        (block_fp8(QWEN3_235B), {1, 2, 4}),
        (GLM_45, {1, 2, 4, 8, 16}),
        (DEEPSEEK_V3, {1, 2, 4, 8, 16}),
        (block_fp8(DEEPSEEK_V3), {1, 2, 4, 8, 16}),
        (GPT_OSS_20B, {1, 2, 4, 8, 16}),
        (FALCON_7B, {1}),
        (QWEN3_NEXT, {1, 2, 4, 8, 16}),
        (block_fp8(QWEN3_NEXT), {1, 2, 4}),
    ],
    ids=[
        "llama-8b", "llama-8b-fp8", "llama-70b", "llama-70b-fp8", "qwen2.5-7b", "qwen2.5-7b-fp8", "qwen2.5-0.5b",
        "qwen2.5-0.5b-fp8", "qwen3-30b", "qwen3-30b-fp8", "qwen3-235b", "qwen3-235b-fp8", "glm-4.5", "deepseek-v3",
        "deepseek-v3-fp8", "gpt-oss-20b", "falcon-7b", "qwen3-next", "qwen3-next-fp8",
    ],
)  # fmt: skip
def test_the_valid_sizes_of_known_models(given: Config, valid: set[int]) -> None:
    assert {tp for tp in POWERS if not tp_problems(given, tp)} == valid


@pytest.mark.parametrize(
    ("given", "tensor", "words"),
    [
        (config(52, 52, 0), 8, "Total number of attention heads (52) must be divisible by tensor parallel size (8)."),
        (config(40, 40, 0), 6, "Total number of attention heads (40) must be divisible by tensor parallel size (6)."),
        (config(32, 32, 0), 3, "Total number of attention heads (32) must be divisible by tensor parallel size (3)."),
        (QWEN25_7B, 8, "Total number of attention heads (28) must be divisible by tensor parallel size (8)."),
        (GLM_45, 3, "Total number of key/value heads (8) and tensor parallel size (3) must divide evenly."),
        (GLM_45, 6, "Total number of key/value heads (8) and tensor parallel size (6) must divide evenly."),
        (QWEN25_05B, 7, "4864 is not divisible by 7"),
        (
            block_fp8(DEEPSEEK_V3),
            32,
            "Weight output_partition_size = 576 is not divisible by weight quantization block_n = 128.",
        ),
        (
            block_fp8(QWEN3_235B),
            8,
            "The output_size of gate's and up's weight = 192 is not divisible by weight quantization block_n = 128.",
        ),
    ],
)
def test_a_size_that_cannot_be_is_refused_in_the_engines_words(given: Config, tensor: int, words: str) -> None:
    assert words in tp_problems(given, tensor)


def test_key_value_heads_divide_too() -> None:
    """Phi-3-medium runs on 2 devices and not on 4: its 40 heads divide by 4, its 10 key/value heads do not."""
    assert tp_problems(PHI_3_MEDIUM, 2) == ()
    assert tp_problems(PHI_3_MEDIUM, 4) == (
        "Total number of key/value heads (10) and tensor parallel size (4) must divide evenly.",
    )
    assert {tp for tp in (1, 2, 4, 5, 8, 10, 20, 40) if not tp_problems(PHI_3_MEDIUM, tp)} == {1, 2, 5, 10, 20, 40}


def test_the_language_model_of_a_multimodal_one_counts() -> None:
    nested = {"architectures": ["X"], "num_attention_heads": 3, "thinker_config": {"text_config": QWEN25_7B}}
    assert architecture(nested) == architecture(QWEN25_7B)


def test_block_sizes_are_found_beside_or_within_the_text_part() -> None:
    beside = {"text_config": QWEN3_30B, "quantization_config": {"weight_block_size": [128, 128]}}
    assert architecture(beside).block == architecture({"text_config": block_fp8(QWEN3_30B)}).block == 128


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"num_attention_heads": None},
        {"num_attention_heads": "32"},
        {"num_attention_heads": [32, 24]},
        {"num_attention_heads": True},
        {"text_config": []},
        {"quantization_config": {"weight_block_size": None}},
        {"quantization_config": "fp8"},
    ],
)
def test_what_a_configuration_does_not_say_is_not_checked(given: Config) -> None:
    assert tp_problems(given, 8) == ()


@given(st.integers(1, 200), st.integers(1, 64), st.integers(1, 64))
def test_a_valid_size_gives_every_rank_the_same_heads(heads: int, kv: int, tensor: int) -> None:
    if not tp_problems(config(heads, kv, 0), tensor) and tensor > 1:
        assert heads % tensor == 0
        assert max(kv, tensor) % min(kv, tensor) == 0
