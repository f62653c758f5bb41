"""Public names keep the signatures of the first edition."""

import inspect
import operator

import pytest

import tilth

# Signatures at d627945, without annotations.
SIGNATURES = {
    "AdamW": "(params, lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01, *, fused=None)",
    "Embedding": "(num_embeddings, embedding_dim, device=None, dtype=None)",
    "Linear": "(in_features, out_features, device=None, dtype=None)",
    "ModelConfig": "(vocab_size, context_length, d_model, num_layers, num_heads, d_ff=None, "
    "rope_theta=10000.0, norm='pre', position='rope', ffn='swiglu', tie_embeddings=False, "
    "qk_norm=False, num_kv_heads=None)",
    "MultiHeadSelfAttention": "(d_model, num_heads, rope=None, num_kv_heads=None, device=None, "
    "dtype=None, *, qk_norm=False)",
    "Muon": "(params, lr=0.001, betas=(0.9, 0.999), eps=1e-08, weight_decay=0.01, "
    "*, momentum=0.95, fused=None)",
    "RMSNorm": "(d_model, eps=1e-05, device=None, dtype=None)",
    "RotaryPositionalEmbedding": "(theta, d_k, max_seq_len, device=None, dtype=None)",
    "SGD": "(params, lr=0.001, *, inverse_sqrt_decay=True)",
    "SwiGLU": "(d_model, d_ff, device=None, dtype=None)",
    "Tokenizer": "(vocab, merges, special_tokens=None, *, pattern='gpt2')",
    "TransformerBlock": "(config, device=None, dtype=None, *, rope=None)",
    "TransformerLM": "(config, device=None, dtype=None)",
    "clip_gradients": "(parameters, max_norm)",
    "cosine_schedule": "(step, max_lr, min_lr, warmup_steps, cosine_steps)",
    "cross_entropy": "(logits, targets)",
    "get_batch": "(tokens, batch_size, context_length, device=None, *, generator=None)",
    "load_checkpoint": "(src, model, optimizer=None)",
    "perplexity": "(loss)",
    "save_checkpoint": "(model, optimizer, iteration, out)",
    "scaled_dot_product_attention": "(q, k, v, mask=None)",
    "silu": "(x)",
    "softmax": "(x, dim)",
    "train_bpe": "(input_path, vocab_size, special_tokens)",
    "Tokenizer.from_files": "(vocab_filepath, merges_filepath, special_tokens=None)",
    "Tokenizer.encode": "(self, text, *, add_special_tokens=False)",
    "Tokenizer.encode_iterable": "(self, iterable, *, allow_special=True, "
    "add_special_tokens=False)",
    "Tokenizer.decode": "(self, ids, errors='replace')",
    "Linear.forward": "(self, x)",
    "Embedding.forward": "(self, token_ids)",
    "RMSNorm.forward": "(self, x)",
    "SwiGLU.forward": "(self, x)",
    "RotaryPositionalEmbedding.forward": "(self, x, token_positions=None)",
    "MultiHeadSelfAttention.forward": "(self, x, token_positions=None)",
    "TransformerBlock.forward": "(self, x, token_positions=None)",
    "TransformerLM.forward": "(self, token_ids, token_positions=None)",
}

LATER = {
    "clip_gradients": ["global_norm"],
    "Linear": ["bias"],
    "ModelConfig": ["head_dim", "norm_eps", "qkv_bias", "rope_scaling"],
    "MultiHeadSelfAttention": ["d_head", "qkv_bias", "norm_eps"],
    "RotaryPositionalEmbedding": ["scaling"],
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_unchanged(name):
    found = inspect.signature(operator.attrgetter(name)(tilth))
    parameters = [each.replace(annotation=each.empty) for each in found.parameters.values()]
    if name.endswith(".forward"):  # an optional cache may follow
        assert all(each.default is None for each in parameters if each.name == "cache")
        parameters = [each for each in parameters if each.name != "cache"]
    # Later parameters follow the old ones and have defaults.
    later = LATER.get(name, [])
    if later:
        assert [each.name for each in parameters[-len(later) :]] == later
        assert all(each.default is not each.empty for each in parameters[-len(later) :])
        parameters = parameters[: -len(later)]
    plain = found.replace(parameters=parameters, return_annotation=found.empty)
    assert str(plain) == SIGNATURES[name]


def test_methods_of_a_language_model():
    for name in ("config", "tokenizer", "end_token", "generate", "generate_batch", "score"):
        assert hasattr(tilth.LanguageModel, name) or name in tilth.LanguageModel.__annotations__
    for name in ("generate", "generate_tokens", "generate_batch", "score", "load_decoder"):
        assert not hasattr(tilth, name)
