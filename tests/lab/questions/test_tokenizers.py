"""The comparison of tokenizers equals counts by Hugging Face and by the reference."""

import json
import statistics
from itertools import pairwise

import numpy as np
import pytest
import tokenizers as hugging_face

from tilth.data import tokenize
from tilth.files import FileError
from tilth.lab.questions import tokenizers
from tilth.lab.questions.tokenizers import compare_tokenizers
from tilth.report.lab_file import load_lab, save_lab
from tilth.tokenizer import inspection, reference, train_tokenizer
from tilth.tokenizer.formats.gpt2 import unspell
from tilth.tokenizer.inspection import Speed

END = "<|endoftext|>"
ANIMALS = ("cat", "dog", "hedgehog", "hippopotamus", "wren")
LINES = (
    "Tilth is the earth a farmer has worked until it's ready for seed.",
    '"We\'ll sow 3 rows," said Ada,   "and they\'ll come up in 14 days."',
    "",
)
TEXTS = {
    "stories": [
        f"Once upon a time, a {animal} met {number + 2} friends. "
        + "They played all day. " * number
        for number in range(12)
        for animal in ANIMALS
    ],
    "web": [
        f"{animal.title()} № {number}: https://example.org/{animal}s?page={number} — {line}"
        for number in range(6)
        for animal in ANIMALS
        for line in LINES
    ],
}
SIZES = (5000, 300, 257, 340)
SPEEDS = {"stories": Speed(2e6, 5e5), "web": Speed(5e6, 1.25e6)}


def made(folder, name, vocab_size=320, pattern="gpt2", texts=None):
    """A data folder of one of the texts."""
    texts = texts or TEXTS[name]
    file = folder / f"{name}.jsonl"
    file.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    tokenizer = train_tokenizer(None, vocab_size, [END], texts=texts, pattern=pattern)
    return tokenize(file, tokenizer, folder / name, valid=0.4)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    return [made(folder, name).folder for name in TEXTS]


@pytest.fixture(scope="module")
def lab(folders):
    """The comparison of both, with known speeds."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizers, "_speed", lambda corpus, _: SPEEDS[corpus.name])
        return compare_tokenizers(folders, sizes=SIZES)


def valid_texts(folder):
    """The validation documents, by Hugging Face's decoder."""
    other = hugging_face.Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids, starts = np.load(folder / "valid.npy"), np.load(folder / "valid_documents.npy")
    return [
        other.decode(ids[start : end - 1].tolist(), skip_special_tokens=False)
        for start, end in pairwise(starts.tolist())
    ]


def train_texts(folder):
    validated = set(valid_texts(folder))
    return [text for text in TEXTS[folder.name] if text not in validated]


def counted(folder, texts):
    """(bytes, tokens) of each text, by Hugging Face."""
    other = hugging_face.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [(len(text.encode()), len(other.encode(text).ids)) for text in texts]


def ratio_of(counts):
    return sum(size for size, _ in counts) / sum(tokens for _, tokens in counts)


def table(lab, title):
    (found,) = [each for each in lab.tables if each.title == title]
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def test_the_texts(lab, folders):
    rows = table(lab, "Texts")
    assert [row["text"] for row in rows] == ["stories", "web"]
    for row, folder in zip(rows, folders, strict=True):
        texts = valid_texts(folder)
        assert set(texts) <= set(TEXTS[row["text"]])
        assert row["validation documents"] == len(texts) >= 10
        assert row["validation bytes"] == sum(len(text.encode()) for text in texts)
        assert row["training bytes"] == sum(len(text.encode()) for text in train_texts(folder))
        assert row["vocabulary size"] == 320
        assert row["pattern"] == "gpt2"


def test_bytes_per_token(lab, folders):
    rows = iter(table(lab, "Bytes per token of each tokenizer on each text"))
    for text in folders:
        own = counted(text, valid_texts(text))
        for by in folders:
            row = next(rows)
            counts = counted(by, valid_texts(text))
            assert (row["text"], row["tokenizer of"]) == (text.name, by.name)
            assert row["bytes per token"] == pytest.approx(ratio_of(counts))
            ratios = [size / tokens for size, tokens in counts]
            edges = statistics.quantiles(ratios, n=20, method="inclusive")
            assert row["nine in ten documents"] == f"{edges[0]:.2f} to {edges[-1]:.2f}"
            more = sum(tokens for _, tokens in counts) / sum(tokens for _, tokens in own) - 1
            assert row["additional tokens"] == (None if text is by else f"{more:+.1%}")
            assert (more > 0) == (text is not by)
    assert next(rows, None) is None


def test_sampled_documents(lab, folders):
    summaries = iter(table(lab, "Bytes per token of each tokenizer on each text"))
    single = table(lab, "Bytes per token of sampled documents")
    for text in folders:
        rows = [row for row in single if row["text"] == text.name]
        assert len({row["document"] for row in rows}) == 10
        sampled = [valid_texts(text)[row["document"] - 1] for row in rows]
        for by in folders:
            counts = counted(by, sampled)
            assert [row["bytes"] for row in rows] == [size for size, _ in counts]
            ratios = [size / tokens for size, tokens in counts]
            assert [row[f"tokenizer of {by.name}"] for row in rows] == pytest.approx(ratios)
            summary = next(summaries)
            assert summary["sampled documents"] == pytest.approx(ratio_of(counts))
            assert summary["range of the sampled"] == f"{min(ratios):.2f} to {max(ratios):.2f}"


def test_longest_tokens(lab, folders):
    rows = table(lab, "Longest tokens, with their bytes")
    assert len(rows) == 10
    for folder in folders:
        vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
        lengths = sorted((len(unspell(token)) for token in vocab if token != END), reverse=True)
        shown = [row[folder.name] for row in rows]
        assert [int(text.rpartition("(")[2].rstrip(")")) for text in shown] == lengths[:10]
    assert any(row["stories"] == "␣hippopotamus (13)" for row in rows)


def test_shared_merges_and_tokens(lab, folders):
    models = [json.loads((folder / "tokenizer.json").read_text())["model"] for folder in folders]
    merges = [{tuple(merge) for merge in model["merges"]} for model in models]
    tokens = [{t for t in model["vocab"] if len(t) > 1 and t != END} for model in models]
    (row,) = [each.rows[0] for each in lab.tables if each.title.startswith("Shared merges")]
    assert len(merges[0]) == len(merges[1]) == len(tokens[0]) == 320 - 257
    shared = [len(a & b) for a, b in (merges, tokens)]
    assert 0 < shared[0] <= shared[1] < 63
    expected = (shared[0], f"{shared[0] / 63:.1%}", shared[1], f"{shared[1] / 63:.1%}")
    assert row == ("stories and web", *expected)


def test_hours_for_825_gb(lab):
    """825e9 bytes at 2e6 a second are 412,500 s."""
    rows = table(lab, "Encoding speed on new text, one thread")
    assert [tuple(row.values()) for row in rows] == [
        ("stories", "2.0", "0.50", "114.6"),
        ("web", "5.0", "1.25", "45.8"),
    ]
    assert any("encode 825 GB in 114.6 and 45.8 hours" in note for note in lab.notes)


def test_a_report_has_no_figures_of_other_texts(lab):
    said = " ".join((lab.answer, *lab.notes))
    assert "write-up" not in said
    assert not [
        other for other in ("OpenWebText", "TinyStories", "9% to 22%", "35 and 73") if other in said
    ]
    assert "Every text has the fewest tokens with its own tokenizer." in lab.notes


def test_speed(folders, monkeypatch):
    """The best of three passes, of 300, 100 and 200 microseconds, over the train split."""
    times = [0, 300e-6, 0, 100e-6, 0, 200e-6] * 2
    monkeypatch.setattr(inspection.time, "perf_counter", lambda: times.pop(0))
    lab = compare_tokenizers(folders, sizes=[300])
    rows = table(lab, "Encoding speed on new text, one thread")
    for row, folder in zip(rows, folders, strict=True):
        ((size, tokens),) = counted(folder, ["\n".join(train_texts(folder))])
        assert row["MB/s"] == f"{size / 100:.1f}"
        assert row["million tokens/s"] == f"{tokens / 100:.2f}"
        assert row["hours for the Pile, 825 GB"] == f"{825e9 * 100e-6 / size / 3600:.1f}"


def test_vocabulary_sizes(lab, folders):
    """Each equals the reference at that size; too large a size ends when no pairs are left."""
    rows = table(lab, "Bytes per token by vocabulary size")
    train = {folder.name: train_texts(folder) for folder in folders}
    reached = {name: len(reference.train(texts, 5000, [END])[0]) for name, texts in train.items()}
    assert [row["vocabulary size"] for row in rows] == sorted({257, 300, 340, *reached.values()})
    lines = {line.name: dict(line.points) for line in lab.charts[0].lines}
    assert lab.charts[0].x_scale == "log"
    for text in folders:
        documents = valid_texts(text)
        for by in folders:
            name = f"{text.name}, tokenizer of {by.name}"
            name = f"{text.name}, own tokenizer" if text is by else name
            assert list(lines[name]) == sorted(
                {257, 300, min(340, reached[by.name]), reached[by.name]}
            )
            for row in rows:
                size = row["vocabulary size"]
                if size not in lines[name]:
                    assert row[name] is None
                    continue
                vocab, merges = reference.train(train[by.name], size, [END])
                tokens = [len(reference.encode(text, vocab, merges)) for text in documents]
                expected = sum(len(text.encode()) for text in documents) / sum(tokens)
                assert lines[name][size] == pytest.approx(expected)
                assert row[name] == pytest.approx(expected)
    for name, size in reached.items():
        assert f"The train text of {name} has merges for {size:,} tokens, not 5,000." in lab.notes


def test_the_answer(lab):
    rows = {
        (row["text"], row["tokenizer of"]): row
        for row in table(lab, "Bytes per token of each tokenizer on each text")
    }
    (shared,) = [each.rows[0][1] for each in lab.tables if each.title.startswith("Shared merges")]
    clauses = lab.answer.split("; ")
    assert len(clauses) == 3
    penalties = {pair: row["additional tokens"] for pair, row in rows.items() if pair[0] != pair[1]}
    ordered = sorted(penalties, key=lambda pair: -float(penalties[pair].rstrip("%")))
    for clause, (text, by) in zip(clauses, ordered, strict=False):
        own, foreign = rows[text, text]["bytes per token"], rows[text, by]["bytes per token"]
        assert clause.lower() == (
            f"with the tokenizer of {by}, {text} needs {penalties[text, by][1:]} more tokens than "
            f"with its own ({foreign:.2f} bytes per token instead of {own:.2f})"
        )
    assert clauses[2] == f"the two tokenizers share {shared / 63:.0%} of their merges."
    assert any(
        note.startswith("Every text has the fewest tokens with its own") for note in lab.notes
    )
    assert not any("different" in note or "equal" in note for note in lab.notes)


def test_gains_of_the_first_and_the_last_size(lab):
    (web,) = [line for line in lab.charts[0].lines if line.name == "web, own tokenizer"]
    (x1, y1), (x2, y2), (x3, y3), (x4, y4) = web.points
    assert (
        f"On web, bytes per token grow by {y2 / y1 - 1:.1%} from {x1} to {x2} tokens and "
        f"{y4 / y3 - 1:.1%} from {x3} to {x4} tokens."
    ) in lab.notes


def test_it_is_a_lab_that_can_be_saved(lab, tmp_path):
    save_lab(tmp_path, lab)
    assert load_lab(tmp_path) == lab
    assert lab.asks == "How well do the tokenizers of stories and web compress each other's text?"


@pytest.fixture
def quick(monkeypatch):
    """No measurements of speed, which differ each time."""
    monkeypatch.setattr(tokenizers, "_speed", lambda *_: Speed(1e6, 1e6))


def test_the_seed_chooses_documents(folders, quick):
    labs = [compare_tokenizers(folders, sizes=[300], seed=seed) for seed in (4, 4, 5)]
    assert labs[0] == labs[1]
    documents = [
        [row["document"] for row in table(lab, "Bytes per token of sampled documents")]
        for lab in labs[1:]
    ]
    assert documents[0] != documents[1]
    for rows in (documents[0][:10], documents[0][10:], documents[1][:10], documents[1][10:]):
        assert len(set(rows)) == 10
    assert "grow" not in " ".join(labs[0].notes)  # of one size alone
    assert "has merges for" not in " ".join(labs[0].notes)


def test_sizes_are_in_order_whichever_text_is_first(lab, folders, quick):
    turned = compare_tokenizers(folders[::-1], sizes=SIZES)
    rows = table(turned, "Bytes per token by vocabulary size")
    assert rows == table(lab, "Bytes per token by vocabulary size")
    assert [row["vocabulary size"] for row in rows] == sorted(
        row["vocabulary size"] for row in rows
    )


def test_progress_lines(folders, quick):
    told = []
    compare_tokenizers(folders, sizes=[300], tell=told.append)
    assert len(told) == 6
    assert told[0] == "Reading the validation text of stories."
    assert told[-1] == "Training tokenizers of up to 300 tokens on web."


def test_max_bytes(folders, quick):
    """A document of 20 bytes, to validate on and to train on."""
    lab = compare_tokenizers(folders, sizes=[300], max_bytes=20)
    for row, folder in zip(table(lab, "Texts"), folders, strict=True):
        assert row["training bytes"] == row["validation bytes"] == 20
        assert row["validation documents"] == 1
        (single,) = [
            each
            for each in table(lab, "Bytes per token of sampled documents")
            if each["text"] == folder.name
        ]
        kept = valid_texts(folder)[0].encode()[:20].decode()
        for by in folders:
            assert single[f"tokenizer of {by.name}"] == pytest.approx(ratio_of(counted(by, [kept])))
        trained_on = train_texts(folder)[0].encode()[:20].decode()
        learnt = len(reference.train([trained_on], 300, [END])[0])
        assert f"The train text of {folder.name} has merges for {learnt} tokens" in " ".join(
            lab.notes
        )


def test_three_of_other_sizes_and_patterns(folders, tmp_path, quick):
    """A text needs more tokens with its own tokenizer, if that has the smallest vocabulary."""
    small = made(tmp_path, "small", 258, "cl100k", TEXTS["stories"]).folder
    lab = compare_tokenizers([*folders, small], sizes=[300])
    assert "The vocabulary sizes are 320, 320 and 258, " in " ".join(lab.notes)
    assert "different patterns (gpt2, gpt2 and cl100k)" in " ".join(lab.notes)
    assert any(
        note.startswith("Not every text has the fewest tokens with its own") for note in lab.notes
    )
    most, least, shared = lab.answer.split("; ")
    assert most.startswith("Largest difference: with the tokenizer of small, stories needs ")
    assert least.startswith("smallest: with the tokenizer of stories, small needs ")
    assert " fewer tokens than with its own" in least
    assert shared.startswith("any two tokenizers share ")
    assert len(lab.charts[0].lines) == 9
    summary = table(lab, "Bytes per token of each tokenizer on each text")
    assert [row["additional tokens"] for row in summary][::4] == [None] * 3


def test_sizes_are_compared_by_the_pattern_of_the_text(folders, tmp_path, quick):
    """By cl100k no token has more than three digits, by gpt2 a whole number is one."""
    numbers = [str(7919**2 * number) for number in range(1, 40)]
    folder = made(tmp_path, "numbers", 300, "cl100k", numbers).folder
    validated = valid_texts(folder)
    learnt = reference.train(sorted({*numbers} - {*validated}), 300, [END], "cl100k")
    tokens = sum(len(reference.encode(text, *learnt, pattern="cl100k")) for text in validated)
    (row,) = compare_tokenizers([folder, folders[0]], sizes=[300]).tables[-1].rows
    assert row[:2] == (300, pytest.approx(sum(map(len, validated)) / tokens))


def test_equal_names(folders, tmp_path, quick):
    again = made(tmp_path, "web").folder
    lab = compare_tokenizers([folders[1], again], sizes=[300])
    assert lab.tables[0].rows[0][0] == str(folders[1])
    assert lab.tables[0].rows[1][0] == str(again)


def test_errors(folders, tmp_path, quick):
    for few in ([], folders[:1], [folders[0], folders[0]], [*folders, folders[0]]):
        with pytest.raises(ValueError, match="two data folders or more, each once"):
            compare_tokenizers(few)
    for sizes in ([], [256, 300]):
        with pytest.raises(ValueError, match="each at least 257"):
            compare_tokenizers(folders, sizes=sizes)
    with pytest.raises(ValueError, match="max_bytes must be at least 1"):
        compare_tokenizers(folders, max_bytes=0)
    with pytest.raises(FileError, match="is not a data folder"):
        compare_tokenizers([folders[0], tmp_path / "none"])
    file = tmp_path / "a.txt"
    file.write_text("all is for training")
    tokenizer = train_tokenizer(None, 257, [END], texts=["a"])
    tokenize(file, tokenizer, tmp_path / "data", valid=0)
    with pytest.raises(FileError, match="no documents in its valid split"):
        compare_tokenizers([folders[0], tmp_path / "data"])
