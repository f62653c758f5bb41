"""The largest values that a config accepts, each defined once.

Configs may be untrusted. Within these limits a shape can be computed, counted and compared to a
checkpoint without exhausting memory. The limits of threads and vocabulary equal those of the native
core (`core/common/limits.hpp`); a test compares them.
"""

MAX_VOCAB_SIZE = 1 << 24
MAX_CONTEXT_LENGTH = 1 << 24
MAX_WIDTH = 1 << 20
"""Limit of `d_model`; that of `d_ff` is four times as large."""
MAX_LAYERS = 10_000
MAX_HEADS = 65_535
MAX_THREADS = 1024
MAX_COUNT = 1 << 53
"""Limit of steps, rows and tokens: exact in a double, so in every JSON reader."""
