"""Speed of encoding text for the first time in a process, compared with other tokenizers.

As `encoding`, but with empty caches. Loading the vocabulary is not timed. bytes are the fastest
input of tilth and of gigatoken here: a str would be converted to UTF-8 in the timed pass.
Target: at least 1.3 times as fast as the fastest peer with the same ids.
"""

from functools import partial

from bench.declaration import Benchmark, Target
from bench.encoding import ONE_THREAD, PEERS, contenders
from bench.vocabularies import VOCABULARIES, tokenizer_texts

BENCHMARK = Benchmark(
    prepare=partial(tokenizer_texts, vocabularies=VOCABULARIES),
    contenders=contenders(warmup=0, kind="bytes"),
    threads=1,
    environment=ONE_THREAD,
    targets=[Target(PEERS, at_least=1.3)],
)
