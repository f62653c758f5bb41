"""The largest values that a config accepts, each defined once.

A config may come from a stranger. Within these limits its shape can be computed with, counted and
compared to a checkpoint without exhausting memory. Those of threads and of the vocabulary are the
native core's own (`core/common/limits.hpp`); a test compares them.
"""

MAX_VOCAB_SIZE = 1 << 24
MAX_CONTEXT_LENGTH = 1 << 24
MAX_WIDTH = 1 << 20
"""Of `d_model`; the feed-forward may be four times as wide."""
MAX_LAYERS = 10_000
MAX_HEADS = 65_535
MAX_THREADS = 1024
MAX_COUNT = 1 << 53
"""Of steps, rows and tokens: exact in a double, and so in every JSON reader."""
