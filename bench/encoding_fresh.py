"""Speed of encoding text for the first time in a process, compared with other tokenizers.

As `encoding`, but with empty caches. Loading the vocabulary is not timed.
Target: at least 1.3 times as fast as gigatoken.
"""

from bench.declaration import Benchmark, Target
from bench.encoding import ONE_THREAD, contenders
from bench.workloads import tokenizer_texts

BENCHMARK = Benchmark(
    prepare=tokenizer_texts,
    contenders=contenders(warmup=0),
    threads=1,
    environment=ONE_THREAD,
    targets=[Target("gigatoken", at_least=1.3)],
)
