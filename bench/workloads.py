"""Text for benchmarks, generated from a random seed: the same bytes on every machine, offline.

It has the properties that matter to a tokenizer: Zipf's law over tens of thousands of words,
numbers, contractions, punctuation, indented lines, documents that end in `<|endoftext|>`. `english`
has the few curly quotes and accents of real prose; Python stores a text without any as ASCII, which
made counting pieces twice as fast. `mixed_scripts` has a dozen scripts, combining marks, emoji of
several code points and spaces beyond ASCII. Bytes per piece, generated and real: 4.9 and 4.8
(OpenWebText), 5.3 and 6.0 (mixed).

    write_once(folder / "english.txt", lambda: english(20_000_000))

Real text is used instead if the folder `REAL_TEXT` exists (docs/benchmarks.md, Texts).
`with_rare_words` makes a corpus for training from a few megabytes. `vocabularies.py` has the texts
and vocabularies of the encoding benchmarks.

Only `Random.random` is used: Python guarantees its sequence. A change to this file or to
`vocabularies.py` gives every benchmark a new cache folder.
"""

import os
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, TypeVar

Sentence = Callable[[], str]
T = TypeVar("T")

REAL_TEXT = Path(
    os.environ.get("TILTH_BENCH_TEXTS", Path(__file__).resolve().parents[2] / "shared" / "data")
)
PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # GPT-2
SPECIAL_TOKEN = "<|endoftext|>"
VOCAB_SIZE = 32_000

COMMON = (
    "the of and to a in that is was he for it with as his on be at by i this had not are but from "
    "or have an they which one you were all her she there would their we him been has when who "
    "will no more if out so up said what its about than into them can only other time new some "
    "could these two may first then do any like my now over such our man me even most made after "
    "also did many off before must well back through years where much your way down should because "
    "long each just state those people too little world good make very year still see own work "
    "men day get here old life both between being under three never know same last another while "
    "us might great go come since against right came take used himself few house use place during "
    "without again home around small however found part school every once thought water upon"
)
CONTRACTED = (
    "don't it's I'm can't you're we've they'll he'd won't she's didn't I've that's couldn't "
    "we'll there's I'd isn't who's wasn't DON'T o'clock 'tis children's don’t it’s café naïve"
)
ONSETS = "b bl br c ch cl cr d dr f fl fr g gl gr h j k l m n p pl pr qu r s sh sl st str t th tr v"
NUCLEI = "a e i o u ai ea ee ie oa oo ou"
CODAS = "b ck d ft g l ll m n nd ng nt p r rd rk rm rt s sk ss st t tch x"
SUFFIXES = ("", "", "", "s", "ed", "ing", "er", "ly", "ness", "able", "ation", "ment")
AROUND = ("{},", "{},", "{};", "({})", '"{}"', "“{}”", "{} --", "{} —", "{}-like")
ENDS = (".", ".", ".", ".", "?", "!", "...", ":")
BETWEEN = ("\n", "\n\n", "\n\n", "  ", "\n    ", "\n\t- ", " \n", "\r\n")
SCRIPTS = (  # first and last letter, more letters, letters per word, word separator, end
    ("а", "я", "", 6, " ", "."),  # Russian
    ("α", "ω", "άέήί", 6, " ", "."),  # Greek
    ("\u4e00", "\u9fa5", "", 2, "", "。"),  # Chinese
    ("ぁ", "ん", "", 4, "", "、"),  # Japanese, hiragana
    ("ァ", "ヴ", "ー", 4, "・", "。\u3000"),  # Japanese, katakana
    ("가", "힣", "", 3, " ", "."),  # Korean
    ("\u0627", "\u063a", "\u064e\u0650", 5, " ", "؟"),  # Arabic, with vowel marks
    ("\u05d0", "\u05ea", "", 5, " ", "."),  # Hebrew
    ("\u0915", "\u0939", "\u093e\u093f\u0947\u094d", 5, " ", "।"),  # Hindi
    ("\u0e01", "\u0e2e", "\u0e31\u0e34\u0e48", 7, "", " "),  # Thai
    ("a", "z", "àâäçéèêëîïñôöøßùûüåæœ", 6, " ", ","),  # Western Europe
    ("a", "z", "\u0301\u0308\u0327", 6, "\u00a0", ";"),  # with combining marks
)
ODDMENTS = (
    "😀 🎉🎉 👍🏽 👩\u200d👩\u200d👧\u200d👦 🇩🇪🇯🇵 ❤\ufe0f → ≤ ∑ € £12 ½ ² Ⅻ ١٢٣ १२३ １２３ "
    "№ 25°C «oui» „ja“ ¿qué? … — ﬁ def __init__(self):"
)


def call(task: tuple[Callable[[Any], T], Any]) -> T:
    """Call a function on its argument: the `run` of contenders whose setup returns both."""
    function, argument = task
    return function(argument)


def fingerprint(data: bytes) -> str:
    """Return a short checksum, for answers."""
    return sha256(data).hexdigest()[:16]


def make_once(file: Path, make: Callable[[Path], object]) -> Path:
    """Return the file; if it is missing, let `make` write it, and rename it when it is complete."""
    if not file.exists():
        partial = file.with_name(f"{os.getpid()}.partial.{file.name}")
        make(partial)
        partial.replace(file)
    return file


def write_once(file: Path, make: Callable[[], str]) -> Path:
    """Return the file; if it is missing, write the text that `make` returns."""
    return make_once(file, lambda partial: partial.write_bytes(make().encode()))


def read_text(file: Path, sample: float = 1.0) -> str:
    """Read the first `sample` of the bytes of a file, without an incomplete last character."""
    data = file.read_bytes()
    if sample == 1.0:
        return data.decode()
    return data[: int(len(data) * sample)].decode(errors="ignore")


def english(size_bytes: int, seed: int = 1) -> str:
    """Generate prose from common English words and invented longer ones."""
    random = Random(seed)
    onsets, nuclei, codas = ONSETS.split(), NUCLEI.split(), CODAS.split()

    def invented() -> str:
        syllables = 1 + int(random.random() * 3)
        stem = "".join(pick(random, onsets) + pick(random, nuclei) for _ in range(syllables))
        return stem + pick(random, codas) + pick(random, SUFFIXES)

    # Shorter words are more frequent, as in every language.
    rare = sorted({invented() for _ in range(40_000)}, key=lambda word: (len(word), word))
    frequent_first = zipf(random, COMMON.split() + rare)
    contracted = CONTRACTED.split()

    def word() -> str:
        chance = random.random()
        if chance < 0.02:
            return number(random)
        if chance < 0.035:
            return pick(random, contracted)
        plain = frequent_first()
        if chance < 0.08:
            return plain.capitalize()
        return plain.upper() if chance < 0.085 else plain

    def sentence() -> str:
        words = [word() for _ in range(3 + int(random.random() * 22))]
        words[0] = words[0][:1].upper() + words[0][1:]
        for _ in range(len(words) // 8):
            place = int(random.random() * len(words))
            words[place] = pick(random, AROUND).format(words[place])
        return " ".join(words) + pick(random, ENDS)

    return documents(random, size_bytes, sentence)


def mixed_scripts(size_bytes: int, seed: int = 2) -> str:
    """Generate sentences of invented words, each in a random script."""
    random = Random(seed)
    oddments = ODDMENTS.split()

    def speaker(script: tuple[str, str, str, int, str, str]) -> Sentence:
        first, last, more, mean, between, end = script
        letters = "".join(map(chr, range(ord(first), ord(last) + 1))) + more * 2

        def invented() -> str:
            length = 1 + int(random.random() * 2 * mean)
            return "".join(pick(random, letters) for _ in range(length))

        word = zipf(random, sorted({invented() for _ in range(5_000)}, key=lambda w: (len(w), w)))

        def sentence() -> str:
            words = [word() for _ in range(2 + int(random.random() * 12))]
            if random.random() < 0.4:
                words.insert(int(random.random() * len(words)), pick(random, oddments))
            if random.random() < 0.3:
                words.append(number(random))
            return between.join(words) + end

        return sentence

    speakers = [speaker(script) for script in SCRIPTS]

    def anyone() -> str:
        return pick(random, speakers)()

    return documents(random, size_bytes, anyone)


def with_rare_words(texts: Sequence[str], size_bytes: int, seed: int = 3) -> str:
    """Repeat the documents, shuffled each time, until there are enough bytes.

    A repeated text has too few distinct words for its size, so about one word in twenty gets an
    extra syllable: 216 MB made from 30 MB have 1.1 million distinct pieces, most of them once.
    """
    changed: list[str] = []
    written = 0
    for repetition in repetitions(texts, seed=seed, words_per_change=20):
        changed += repetition
        written += sum(len(document.encode()) + len(SPECIAL_TOKEN) for document in repetition)
        if written >= size_bytes:
            break
    return SPECIAL_TOKEN.join(changed)


def repetitions(texts: Sequence[str], *, seed: int, words_per_change: int) -> Iterator[list[str]]:
    """Yield the documents again and again, shuffled, with an extra syllable in some words."""
    random = Random(seed)
    syllables = [onset + nucleus for onset in ONSETS.split() for nucleus in NUCLEI.split()]
    originals = [document for text in texts for document in text.split(SPECIAL_TOKEN)]
    longest_step = 2 * words_per_change
    while True:
        changed = []
        for document in sorted(originals, key=lambda _: random.random()):
            words = document.split(" ")
            place = int(random.random() * longest_step)
            while place < len(words):
                word = words[place]
                cut = int(random.random() * (len(word) + 1))
                words[place] = word[:cut] + pick(random, syllables) + word[cut:]
                place += 1 + int(random.random() * longest_step)
            changed.append(" ".join(words))
        yield changed


def pick(random: Random, choices: Sequence[T]) -> T:
    """Choose one uniformly."""
    return choices[int(random.random() * len(choices))]


def zipf(random: Random, words: Sequence[str]) -> Callable[[], str]:
    """Return a function that draws words with frequency proportional to 1 / (rank + 3)."""
    weights = list(accumulate(1 / (rank + 3) for rank in range(len(words))))
    return lambda: words[bisect(weights, random.random() * weights[-1], 0, len(words) - 1)]


def number(random: Random) -> str:
    """Format a random number as a count, a price, a percentage or a year."""
    value = int(10 ** (random.random() * 6))
    price, share, year = f"${value / 100:.2f}", f"{value % 100}%", f"{1900 + value % 130}"
    return pick(random, (f"{value}", f"{value:,}", price, share, year))


def documents(random: Random, size_bytes: int, sentence: Sentence) -> str:
    """Join sentences into lines, paragraphs and documents until there are enough bytes."""
    parts: list[str] = []
    written = 0
    while written < size_bytes:
        chance = random.random()
        if chance < 0.82:
            between = " "
        else:
            between = pick(random, BETWEEN) if chance < 0.985 else "\n<|endoftext|>\n"
        part = sentence() + between
        parts.append(part)
        written += len(part.encode())
    return "".join(parts)
