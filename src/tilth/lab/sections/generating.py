"""Section 9: stories of the trained model, at several temperatures and top-p."""

from collections import Counter
from dataclasses import dataclass, replace

from tilth.generation import LanguageModel, load
from tilth.lab.questions.corpora import bits_per_byte
from tilth.lab.sections.section import Made, Setting, own_command
from tilth.lab.sections.training import corpora_lab, size_text
from tilth.report.lab_file import Lab, Quote, Table, trial_folder

PROMPT = "Once upon a time"
SEEDS = (0, 1, 2)
MAX_TOKENS = 256
SAMPLERS = (
    ("greedy", 0.0, 1.0),
    ("temperature 0.5", 0.5, 1.0),
    ("temperature 0.8, top-p 0.95", 0.8, 0.95),
    ("temperature 0.8, top-p 0.5", 0.8, 0.5),
    ("temperature 1", 1.0, 1.0),
    ("temperature 1.5", 1.5, 1.0),
)
QUOTED = "temperature 0.8, top-p 0.95"
NGRAM = 4


@dataclass(frozen=True)
class _Measured:
    """The stories of a sampler: `bits` per byte under the model, shares of repeated n-grams."""

    name: str
    texts: tuple[str, ...]
    bits: float
    repeated: float
    words: float


def repeated_ngrams(text: str) -> float:
    """Return the share of the NGRAM-grams of words that occurred before in the text.

    >>> repeated_ngrams("a b c d a b c d")
    0.2
    """
    words = text.split()
    grams = Counter(tuple(words[i : i + NGRAM]) for i in range(len(words) - NGRAM + 1))
    total = sum(grams.values())
    return (total - len(grams)) / total if total else 0.0


def _measure(
    model: LanguageModel, max_tokens: int, name: str, temperature: float, top_p: float
) -> _Measured:
    texts = []
    for seed in SEEDS:
        pieces = model.generate(
            PROMPT, temperature=temperature, top_p=top_p, seed=seed, max_tokens=max_tokens
        )
        texts.append(PROMPT + "".join(pieces))
    return _Measured(
        name,
        tuple(texts),
        bits_per_byte(model, texts),
        sum(map(repeated_ngrams, texts)) / len(texts),
        sum(len(text.split()) for text in texts) / len(texts),
    )


def made(setting: Setting) -> Made:
    """Generate stories by several samplers, and measure them."""
    trained = corpora_lab(setting).lab
    folder = trial_folder(setting.folder / "corpora", trained.trials[0])
    model = load(folder)
    setting.tell(f"Generating {len(SEEDS) * len(SAMPLERS)} stories.")
    # The whole story is scored from its start, so prompt and story fit the context.
    max_tokens = max(1, min(MAX_TOKENS, model.config.context_length - 8))
    measured = [_measure(model, max_tokens, *sampler) for sampler in SAMPLERS]
    quoted = next(each for each in measured if each.name == QUOTED)
    low, high = measured[1], measured[-1]
    answer = (
        f"A lower temperature writes text that the model finds likelier and that repeats more: "
        f"{low.bits:.2f} bits per byte and {low.repeated:.0%} repeated {NGRAM}-grams at 0.5, "
        f"{high.bits:.2f} and {high.repeated:.0%} at 1.5."
        if low.bits < high.bits and low.repeated > high.repeated
        else f"Bits per byte and repeated {NGRAM}-grams are {low.bits:.2f} and {low.repeated:.0%} "
        f"at temperature 0.5, {high.bits:.2f} and {high.repeated:.0%} at 1.5."
    )
    answer = (
        f"{answer} {size_text(setting, 'corpora', replace(trained, trials=trained.trials[:1]))}"
    )
    valid = float(_valid_bits(trained))
    place = "between them" if low.bits < valid < high.bits else "not between them"
    table = Table.by(
        f"{len(SEEDS)} stories each",
        measured,
        {
            "sampling": lambda each: each.name,
            "bits per byte under the model": lambda each: f"{each.bits:.3f}",
            f"repeated {NGRAM}-grams": lambda each: f"{each.repeated:.1%}",
            "words per story": lambda each: f"{each.words:.0f}",
        },
    )
    quotes = [
        Quote(f"Story {seed + 1}", f"{QUOTED}, seed {seed}", text)
        for seed, text in zip(SEEDS, quoted.texts, strict=True)
    ]
    quotes += [
        Quote(each.name, "seed 0", each.texts[0]) for each in measured if each.name != QUOTED
    ]
    command = own_command(setting, "generation")
    lab = Lab("generation", "", answer, command, tables=(table,), quotes=tuple(quotes))
    return Made.of(
        lab,
        "generation",
        name=setting.names[0],
        folder=folder,
        bits=f"{valid:.2f}",
        place=place,
        prompt=PROMPT,
        max_tokens=max_tokens,
        seeds=", ".join(map(str, SEEDS)),
    )


def _valid_bits(lab: Lab) -> str:
    table = lab.tables[0]
    return str(dict(zip(table.columns, table.rows[0], strict=True))["bits per byte"])
