"""The shapes of well-known models by name: GPT-2's sizes in this architecture, and Llamas.

>>> GPT2_SHAPES["gpt2-xl"].d_model
1600
"""

from tilth.config.model import ModelConfig

GPT2_VOCAB_SIZE = 50_257
GPT2_CONTEXT_LENGTH = 1024


def _gpt2(d_model: int, num_layers: int, num_heads: int) -> ModelConfig:
    return ModelConfig(
        GPT2_VOCAB_SIZE, GPT2_CONTEXT_LENGTH, d_model, num_layers, num_heads, d_ff=4 * d_model
    )


GPT2_SHAPES = {
    "gpt2-small": _gpt2(768, 12, 12),
    "gpt2-medium": _gpt2(1024, 24, 16),
    "gpt2-large": _gpt2(1280, 36, 20),
    "gpt2-xl": _gpt2(1600, 48, 25),
}
LLAMA_SHAPES = {
    "tinyllama-1.1b": ModelConfig(32_000, 2048, 2048, 22, 32, d_ff=5632, num_kv_heads=4),
    "llama-2-7b": ModelConfig(32_000, 4096, 4096, 32, 32, d_ff=11_008),
    "llama-2-13b": ModelConfig(32_000, 4096, 5120, 40, 40, d_ff=13_824),
    "llama-2-70b": ModelConfig(32_000, 4096, 8192, 80, 64, d_ff=28_672, num_kv_heads=8),
    "llama-3-8b": ModelConfig(
        128_256, 8192, 4096, 32, 32, d_ff=14_336, num_kv_heads=8, rope_theta=500_000.0
    ),
    "llama-3-70b": ModelConfig(
        128_256, 8192, 8192, 80, 64, d_ff=28_672, num_kv_heads=8, rope_theta=500_000.0
    ),
}


def gpt2_parameters(config: ModelConfig) -> int:
    """Return the parameter count of OpenAI's GPT-2: learned positions, biases, tied embedding."""
    d_model = config.d_model
    matrices_and_biases = 12 * d_model * d_model + 9 * d_model
    norms = 4 * d_model
    rows = config.vocab_size + config.context_length
    return rows * d_model + config.num_layers * (matrices_and_biases + norms) + 2 * d_model
