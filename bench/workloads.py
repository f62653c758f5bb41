"""Text to measure on, made from a seed: the same bytes on every machine, with nothing to download.

A size in bytes enters, text leaves. It has what matters to a tokenizer: a few words that come often
and tens of thousands that come seldom (Zipf's law), numbers, contractions, punctuation, indented
lines, documents that end in `<|endoftext|>`. `english` has the few curly quotes and accents of real
prose: Python would keep a text without any as ASCII, on which counting pieces was twice as fast.
`mixed_scripts` has a dozen scripts, combining marks, emoji of several code points and spaces beyond
ASCII. Bytes a piece, generated and real: 4.9 and 4.8 (OpenWebText), 5.3 and 6.0 (mixed).

    write_once(folder / "english.txt", lambda: english(20_000_000))

Real text stands in for it where it lies beside the project (`REAL_TEXT`), which is never needed:
`tokenizer_texts` are the texts to encode and decode, beside the vocabulary in every format that a
peer reads, and `with_rare_words` makes a corpus to train on from a few megabytes.

Only `Random.random` is used, whose sequence Python promises to keep. Changing this file gives every
benchmark a new cache folder.
"""

import os
from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import TypeVar

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
SCRIPTS = (  # first and last letter, what else occurs in words, letters a word, between words, end
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
    ("a", "z", "\u0301\u0308\u0327", 6, "\u00a0", ";"),  # the same with combining marks
)
ODDMENTS = (
    "😀 🎉🎉 👍🏽 👩\u200d👩\u200d👧\u200d👦 🇩🇪🇯🇵 ❤\ufe0f → ≤ ∑ € £12 ½ ² Ⅻ ١٢٣ १२३ １２３ "
    "№ 25°C «oui» „ja“ ¿qué? … — ﬁ def __init__(self):"
)


def write_once(file: Path, make: Callable[[], str]) -> Path:
    """Return the file, made if it is not there; it is never seen half written."""
    if not file.exists():
        partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
        partial.write_bytes(make().encode())
        partial.replace(file)
    return file


def read_text(file: Path, sample: float = 1.0) -> str:
    """Read the first `sample` of the file's bytes; a character cut in two is left out."""
    data = file.read_bytes()
    if sample == 1.0:
        return data.decode()
    return data[: int(len(data) * sample)].decode(errors="ignore")


def english(size_bytes: int, seed: int = 1) -> str:
    """Make prose that sounds like English from real short words and invented longer ones."""
    random = Random(seed)
    onsets, nuclei, codas = ONSETS.split(), NUCLEI.split(), CODAS.split()

    def invented() -> str:
        syllables = 1 + int(random.random() * 3)
        stem = "".join(pick(random, onsets) + pick(random, nuclei) for _ in range(syllables))
        return stem + pick(random, codas) + pick(random, SUFFIXES)

    # Shorter words are the more frequent ones, as in every language.
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
    """Make text whose every sentence is in another script, with invented words."""
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
    """Repeat the documents of texts, shuffled anew each time, until there are enough bytes.

    A text alone has too few words for its size if it is repeated, so about one in twenty is given
    a syllable more: 216 MB made of 30 have 1.1 million different pieces, most of them seen once.
    """
    random = Random(seed)
    syllables = [onset + nucleus for onset in ONSETS.split() for nucleus in NUCLEI.split()]
    originals = [document for text in texts for document in text.split(SPECIAL_TOKEN)]
    changed: list[str] = []
    written = 0
    while written < size_bytes:
        for document in sorted(originals, key=lambda _: random.random()):
            words = document.split(" ")
            place = int(random.random() * 40)
            while place < len(words):
                word = words[place]
                cut = int(random.random() * (len(word) + 1))
                words[place] = word[:cut] + pick(random, syllables) + word[cut:]
                place += 1 + int(random.random() * 40)
            changed.append(" ".join(words))
            written += len(changed[-1].encode()) + len(SPECIAL_TOKEN)
    return SPECIAL_TOKEN.join(changed)


def tokenizer_texts(folder: Path) -> dict[str, Path]:
    """Name texts to encode, and lay `tokenizer.json` and `ranks.tiktoken` beside them.

    Real text and GPT-2's vocabulary where they are there, else generated text and a vocabulary
    that tilth learns from it.
    """
    from tilth.tokenizer import Tokenizer, train_tokenizer

    if REAL_TEXT.exists():
        texts = {
            "English, OpenWebText": copy_once(folder, "openwebtext_sample.txt"),
            "English, TinyStories": copy_once(folder, "tinystories_train.txt"),
            "mixed scripts": copy_once(folder, "mixed_scripts.txt"),
        }
        vocab, merges = REAL_TEXT / "gpt2_vocab.json", REAL_TEXT / "gpt2_merges.txt"
        tokenizer = Tokenizer.from_files(vocab, merges, [SPECIAL_TOKEN])
    else:
        texts = {
            "English, generated": write_once(folder / "english.txt", lambda: english(10_000_000)),
            "mixed scripts, generated": write_once(
                folder / "mixed_scripts.txt", lambda: mixed_scripts(6_000_000)
            ),
        }
        tokenizer = train_tokenizer(texts.values(), VOCAB_SIZE, [SPECIAL_TOKEN])
    tokenizer.save(folder / "tokenizer.json", overwrite=True)
    tokenizer.save_tiktoken(folder / "ranks.tiktoken", overwrite=True)
    return texts


def copy_once(folder: Path, name: str) -> Path:
    """Put a real text where the vocabulary is."""
    return write_once(folder / name, lambda: read_text(REAL_TEXT / name))


def pick(random: Random, choices: Sequence[T]) -> T:
    """Choose one, each as likely as any other."""
    return choices[int(random.random() * len(choices))]


def zipf(random: Random, words: Sequence[str]) -> Callable[[], str]:
    """Return a function that chooses a word, the n-th about 1/n as often as the first."""
    weights = list(accumulate(1 / (rank + 3) for rank in range(len(words))))
    return lambda: words[bisect(weights, random.random() * weights[-1], 0, len(words) - 1)]


def number(random: Random) -> str:
    """Write a number as people do: a count, a price, a share or a year."""
    value = int(10 ** (random.random() * 6))
    price, share, year = f"${value / 100:.2f}", f"{value % 100}%", f"{1900 + value % 130}"
    return pick(random, (f"{value}", f"{value:,}", price, share, year))


def documents(random: Random, size_bytes: int, sentence: Sentence) -> str:
    """Put sentences into lines, paragraphs and documents until there are enough bytes."""
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
