"""The scenarios for the comparison of two editions, as data.

A scenario is a list of commands, run in one workspace with relative paths. A command is a command
line of `tilth`. If its first word is in `PROBES`, it is a call of the Python API instead
(`edition_runner.py`). All paths that a scenario writes begin with its name.

>>> SCENARIOS["stories"].commands[0][:2]
('corpus', 'stories')
"""

from dataclasses import dataclass

Command = tuple[str, ...]

PROBES = ("score", "generate-batch", "batches")


@dataclass(frozen=True)
class Scenario:
    """Commands whose results are compared bit by bit."""

    name: str
    commands: tuple[Command, ...]
    needs: tuple[str, ...] = ()
    """Scenarios whose files this one reads."""
    kill_at_step: int | None = None
    """Send SIGKILL to the first command once its metrics hold this step."""
    same_run_as: str | None = None
    """A scenario whose run directory must have the same bits."""
    may_fail: bool = False
    """The machine may not support it; then both editions must refuse it in the same way."""


def _words(line: str) -> Command:
    return tuple(line.split())


END = ("--special", "<|endoftext|>")
SMALL = _words(
    "--model.d-model 16 --model.num-layers 2 --model.num-heads 2 --model.context-length 16 "
    "--batch-size 4 --machine.threads 1 --machine.no-compile "
    "--watch.evaluation-tokens 100 --watch.sample-tokens 8"
)
ONE_LAYER = (*SMALL, "--model.num-layers", "1")
PROMPT = ("--prompt", "Once upon a time")
TEXT = "Once upon a time there was a little dog. He said: “naïve café”, 12,345 times!"


def _train(name: str, options: str = "", *, steps: int = 8, recipe: str = "tiny") -> Scenario:
    command = ("train", recipe, "--data", "data/data", "--out", f"{name}/run")
    own = (*SMALL, "--steps", str(steps), *_words(options))
    return Scenario(name, ((*command, *_last_of(own)),), needs=("data",))


def _last_of(options: Command) -> Command:
    """Keep the last value of each option; options without a value pass through."""
    values: dict[str, list[str]] = {}
    for word in options:
        if word.startswith("--"):
            values.pop(word, None)
            values[word] = []
            name = word
        else:
            values[name].append(word)
    return tuple(word for name, found in values.items() for word in (name, *found))


def _generate(name: str, run: str, options: str) -> Scenario:
    command = ("generate", f"{run}/run", *PROMPT, "--json", *_words(options))
    return Scenario(name, (command,), needs=(run,))


_LIST = [
    Scenario(
        "stories",
        (
            _words("corpus stories --out stories/stories.txt --size 60kB --json"),
            _words("corpus stories --out stories/others.txt --size 40kB --seed 7 --json"),
            _words("corpus info stories/stories.txt --json"),
        ),
    ),
    Scenario(
        "tokenizer",
        (
            (
                *_words("tokenizer train stories/stories.txt --vocab-size 300 --json"),
                *("--out", "tokenizer/own.json", *END),
            ),
            (
                *_words("tokenizer train stories/others.txt --vocab-size 400 --pattern cl100k"),
                *("--out", "tokenizer/cl100k.json", "--json", *END),
            ),
            _words("tokenizer convert tokenizer/own.json --out tokenizer/gpt2"),
            _words("tokenizer convert tokenizer/own.json --out tokenizer/own.tiktoken"),
            (
                *_words("tokenizer convert tokenizer/gpt2 --out tokenizer/back.json"),
                *END,
            ),
            ("tokenizer", "inspect", "tokenizer/own.json", "--text", TEXT, "--json"),
            ("tokenizer", "inspect", "tokenizer/cl100k.json", "--text", TEXT, "--json"),
            ("tokenizer", "inspect", "tokenizer/gpt2", "--text", TEXT, "--json", *END),
        ),
        needs=("stories",),
    ),
    Scenario(
        "data",
        (
            _words(
                "tokenize stories/stories.txt --tokenizer tokenizer/own.json --out data/data "
                "--valid 0.1 --json"
            ),
            _words(
                "tokenize stories/stories.txt --tokenizer tokenizer/cl100k.json --out data/other "
                "--valid-corpus stories/others.txt --json"
            ),
            _words("verify data/data --json"),
        ),
        needs=("stories", "tokenizer"),
    ),
    Scenario(
        "batches",
        (_words("batches data/data/train.npy epoch"), _words("batches data/data/train.npy random")),
        needs=("data",),
    ),
    Scenario(
        "account",
        tuple(
            _words(f"account {words} --json")
            for words in (
                "gpt2-xl --batch-size 8 --steps 1000",
                "llama-3-8b --hardware h100 --dtype bfloat16 --steps 10 --price 2.5",
                "tinystories --optimizer sgd --shares",
                "tiny --qk-norm --tie-embeddings --recompute",
                "gpt2-small --hours 24 --hardware a100 --memory 40GB --num-kv-heads 4",
            )
        ),
    ),
    # Training: optimizers, schedules, model variants, data orders, accumulation, precisions.
    _train("muon"),
    _train("adamw", "--optimizer.name adamw --optimizer.lr 3e-3 --seed 3"),
    _train("small", "--optimizer.lr 3e-3", recipe="small", steps=5),
    _train("tied", "--model.tie-embeddings"),
    _train("post-norm", "--model.norm post --optimizer.name adamw"),
    _train("no-norm", "--model.norm none --optimizer.lr 1e-3"),
    _train("no-rope", "--model.position none"),
    _train("silu", "--model.ffn silu --optimizer.name adamw"),
    _train("qk-norm", "--model.qk-norm --model.num-kv-heads 1"),
    _train("rope-theta", "--model.rope-theta 500 --model.d-ff 40 --model.context-length 24"),
    _train("random-order", "--order random --seed 11"),
    _train("accumulation", "--batch-size 6 --microbatch-size 4 --optimizer.max-grad-norm 0.1"),
    _train("two-threads", "--machine.threads 2 --optimizer.betas 0.8 0.9 --optimizer.eps 1e-6"),
    _train(
        "stable-decay",
        "--optimizer.schedule warmup-stable-decay --optimizer.warmup-steps 2 "
        "--optimizer.decay-steps 3 --optimizer.name adamw --optimizer.weight-decay 0.3",
    ),
    _train("constant", "--optimizer.schedule constant --optimizer.momentum 0.8"),
    _train("large-lr", "--optimizer.lr 2 --optimizer.name adamw", steps=12),
    *(
        Scenario(
            name,
            _train(name, f"--machine.dtype bfloat16 --optimizer.name {optimizer}").commands,
            ("data",),
            may_fail=True,
        )
        for name, optimizer in (("bfloat16", "adamw"), ("bfloat16-muon", "muon"))
    ),
    # Killing and resuming.
    _train("long", "--watch.save-every 20 --watch.evaluate-every 50", steps=300),
    Scenario(
        "killed",
        (
            *_train(
                "killed", "--watch.save-every 20 --watch.evaluate-every 50", steps=300
            ).commands,
            _words("resume killed/run"),
        ),
        needs=("data", "long"),
        kill_at_step=70,
        same_run_as="long",
    ),
    Scenario(
        "extended",
        (
            *_train("extended", "--optimizer.name adamw", steps=6).commands,
            _words("resume extended/run --steps 5"),
            _words("verify extended/run --json"),
        ),
        needs=("data",),
    ),
    # Generation: both backends, both precisions, all sampling options.
    _generate("greedy", "long", "--temperature 0 --max-tokens 40"),
    _generate("greedy-int8", "long", "--temperature 0 --max-tokens 40 --quantize int8"),
    _generate("greedy-torch", "long", "--temperature 0 --max-tokens 40 --device cpu:0"),
    _generate("sampled", "long", "--seed 5 --samples 3 --max-tokens 30 --temperature 0.8"),
    _generate("sampled-int8", "long", "--seed 5 --samples 2 --max-tokens 30 --quantize int8"),
    _generate("sampled-torch", "long", "--seed 5 --samples 2 --max-tokens 30 --device cpu:0"),
    _generate(
        "filtered",
        "long",
        "--seed 2 --samples 2 --max-tokens 40 --top-k 20 --top-p 0.9 --min-p 0.01 "
        "--repetition-penalty 1.3 --alternatives 2 --threads 1",
    ),
    _generate("stopped", "long", "--seed 1 --past-context stop --stop e --samples 4"),
    _generate("generate-qk-norm", "qk-norm", "--seed 1 --max-tokens 30"),
    _generate("generate-tied", "tied", "--seed 1 --max-tokens 30 --quantize int8"),
    _generate("generate-silu", "silu", "--seed 1 --max-tokens 30 --device cpu:0"),
    _generate("generate-post-norm", "post-norm", "--seed 1 --max-tokens 30"),
    _generate("generate-no-rope", "no-rope", "--seed 1 --max-tokens 30 --step 7"),
    Scenario(
        "plain-text",
        (
            ("generate", "long/run", *PROMPT, *_words("--samples 2 --seed 4 --max-tokens 20")),
            (*_words("generate long/run --max-tokens 5 --prompt"), "<|endoftext|>"),
            (*_words("generate long/run --max-tokens 5 --allow-special --prompt"), "<|endoftext|>"),
        ),
        needs=("long",),
    ),
    Scenario(
        "score",
        (
            ("score", "long/run", "native", TEXT),
            ("score", "long/run", "int8", TEXT),
            ("score", "long/run", "torch", TEXT),
            ("score", "qk-norm/run", "native", ""),
        ),
        needs=("long", "qk-norm"),
    ),
    Scenario(
        "generate-batch",
        (
            ("generate-batch", "long/run", "0", "Once upon a time", "The dog", ""),
            ("generate-batch", "long/run", "0.9", "Once upon a time", "The dog", "One day, a"),
            ("generate-batch", "qk-norm/run", "0.9", "Once upon a time", "The"),
        ),
        needs=("long", "qk-norm"),
    ),
    Scenario(
        "evaluate",
        (
            _words("evaluate long/run --json"),
            _words("evaluate long/run --step 280 --max-tokens 200 --json"),
            _words("evaluate no-rope/run --json"),
        ),
        needs=("long", "no-rope"),
    ),
    # The lab: findings and runs.
    Scenario("lab-sgd", (_words("lab sgd --lr 1 --lr 30 --lr 1e4 --steps 12 --seed 2 --json"),)),
    Scenario(
        "lab-lr",
        (
            (
                *_words("lab lr --data data/data --recipe tiny --steps 4 --out lab-lr/lab"),
                *_last_of(ONE_LAYER),
            ),
        ),
        needs=("data",),
    ),
    Scenario(
        "lab-ablations",
        (
            (
                *_words("lab ablations --data data/data --recipe tiny --steps 2 --seeds 1"),
                *("--out", "lab-ablations/lab", *_last_of(ONE_LAYER)),
            ),
        ),
        needs=("data",),
    ),
    Scenario(
        "lab-search",
        (
            (
                *_words("lab search --data data/data --recipe tiny --steps 4 --trials 4 --seed 1"),
                *_words("--vary optimizer.lr=0.001..0.1 --vary model.d_ff=32,64"),
                *("--out", "lab-search/lab"),
                *(word for word in _last_of(ONE_LAYER[:-6])),
            ),
        ),
        needs=("data",),
    ),
]

SCENARIOS = {scenario.name: scenario for scenario in _LIST}
