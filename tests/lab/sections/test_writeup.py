"""The write-up: its sections, that it continues, and that its numbers are those of the commands."""

import logging
import math
import re

import pytest

import tilth
from tests.command_line import tilth as command
from tilth.accounting import account
from tilth.files import FileError
from tilth.lab.sections import bugs, generating, layers, runner
from tilth.lab.sections.accounting import reconstructions
from tilth.lab.sections.figures import AUTHORS, figures
from tilth.report.lab_file import LAB, load_lab

PROBLEMS = re.findall(
    r"\w+",
    """
    unicode1 unicode2 train_bpe train_bpe_tinystories train_bpe_expts_owt tokenizer
    tokenizer_experiments linear embedding rmsnorm positionwise_feedforward rope softmax
    scaled_dot_product_attention multihead_self_attention transformer_block transformer_lm
    transformer_accounting cross_entropy learning_rate_tuning adamw adamwAccounting
    learning_rate_schedule gradient_clipping data_loading checkpointing training_together
    decoding experiment_log learning_rate batch_size_experiment generate layer_norm_ablation
    pre_norm_ablation no_pos_emb swiglu_ablation main_experiment leaderboard
    """,
)
TINY = {
    "steps": 2,
    "max_bytes": 60_000,
    "recipe": "tiny",
    "batch_size": 4,
    "changes": {
        **{"model.d_model": 16, "model.num_heads": 2, "model.num_layers": 1},
        **{"model.context_length": 16, "machine.threads": 1, "machine.compile": False},
        **{"watch.evaluation_tokens": 100, "watch.sample_tokens": 4},
    },
}


@pytest.fixture(scope="module")
def texts(stories, tmp_path_factory):
    """The shared stories, and a second text with its own vocabulary."""
    folder = tmp_path_factory.mktemp("texts")
    file = folder / "web.txt"
    parts = [f"The price of item {n} is {n * 7} €, see page {n % 9}." for n in range(900)]
    file.write_text("<|endoftext|>".join(parts))
    tokenizer = tilth.train_tokenizer(file, 300, ["<|endoftext|>"])
    return [stories, tilth.tokenize(file, tokenizer, folder / "web", valid=0.2)]


@pytest.fixture(scope="module")
def written(texts, tmp_path_factory):
    """A tiny write-up of all sections."""
    out = tmp_path_factory.mktemp("writeup") / "writeup"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tilth.lab.sections.vocabulary.SHARES", (0.5, 1))
        patch.setattr("tilth.lab.sections.vocabulary.LADDER_MERGES", 20)
        patch.setattr("tilth.lab.sections.tokenizing.RUNG_SECONDS", 0.01)
        patch.setattr("tilth.lab.sections.training.WIDTHS", (64,))
        paths = tilth.lab.writeup(texts, out=out, **TINY)
    return out, paths


def part(written, name):
    return load_lab(written[0] / "parts" / name)


def table(lab, title):
    return next(each for each in lab.tables if each.title.startswith(title))


def test_every_problem_of_the_handout_has_a_part():
    parts = [part for section in runner.SECTIONS for part in section.parts]
    assert {name for part in parts for name in part.problems} == set(PROBLEMS)
    assert len({part.name for part in parts}) == len(parts)
    assert len(runner.SECTIONS) == 12


def test_the_document_names_its_problems_and_is_in_order(written):
    out, paths = written
    page, markdown = paths[0].read_text(), paths[1].read_text()
    assert paths[:2] == [out / "writeup.html", out / "writeup.md"]
    places = [markdown.index(f"\n## {n}. ") for n in range(1, 13)]
    assert places == sorted(places)
    for name in ("unicode1", "train_bpe_tinystories", "adamwAccounting", "main_experiment"):
        assert name in page
        assert name.replace("_", r"\_") in markdown
    assert page.count("How it was computed") == markdown.count("How it was computed") == 19
    assert "<summary>The figures of the five write-ups, A to E</summary>" in page
    assert "Story 3" in page
    assert "No such file" not in page


def test_a_second_call_computes_nothing(written, texts, monkeypatch):
    out, _ = written
    made = {path: path.stat().st_mtime_ns for path in (out / "parts").glob(f"*/{LAB}")}
    monkeypatch.setattr(tilth.lab.sections.section.Made, "folded", None)
    paths = tilth.lab.writeup(texts, out=out, only=["unicode", "corpora"], **TINY)
    assert made == {path: path.stat().st_mtime_ns for path in made}
    assert "## 9. Generation" in paths[1].read_text()  # a part of the first call


def test_an_interrupted_write_up_goes_on(texts, tmp_path, monkeypatch):
    def interrupt(_setting):
        raise KeyboardInterrupt

    section = runner.SECTIONS[1]
    broken = type(section)("vocabulary", "", (type(section.parts[0])("vocabulary", (), interrupt),))
    monkeypatch.setattr(runner, "SECTIONS", (runner.SECTIONS[0], broken))
    with pytest.raises(KeyboardInterrupt):
        tilth.lab.writeup(texts, out=tmp_path / "w", **TINY)
    done = tmp_path / "w" / "parts" / "unicode" / LAB
    before = done.stat().st_mtime_ns
    monkeypatch.setattr(runner, "SECTIONS", runner.SECTIONS[:1])
    paths = tilth.lab.writeup(texts, out=tmp_path / "w", **TINY)
    assert done.stat().st_mtime_ns == before
    assert "1. Unicode" in paths[1].read_text()


def test_other_settings_are_refused(written, texts):
    out, _ = written
    with pytest.raises(ValueError, match="was begun with steps = 2, not 3; give the same"):
        tilth.lab.writeup(texts, out=out, **{**TINY, "steps": 3})
    with pytest.raises(ValueError, match="was begun with"):
        tilth.lab.writeup(texts, out=out, **{**TINY, "seed": 1})


def test_errors(texts, tmp_path):
    with pytest.raises(ValueError, match="there is no section 'unicod'; did you mean unicode"):
        tilth.lab.writeup(out=tmp_path / "w", only=["unicod"])
    with pytest.raises(ValueError, match="1 data folders are given; give --data twice"):
        tilth.lab.writeup(texts[:1], out=tmp_path / "w")
    with pytest.raises(ValueError, match="the same name; rename one"):
        tilth.lab.writeup([texts[0], texts[0]], out=tmp_path / "w")
    with pytest.raises(TypeError, match="there is no option recip; did you mean recipe"):
        tilth.lab.writeup(out=tmp_path / "w", recip="tiny")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    with pytest.raises(FileExistsError, match="not empty and not a write-up"):
        tilth.lab.writeup(out=tmp_path / "other")
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("name", ["corpora-made", "parts", "texts"])
def test_a_link_in_place_of_a_folder_is_not_followed(texts, tmp_path, name):
    out = tmp_path / "out"
    out.mkdir()
    (out / "writeup.json").write_text("{}")
    (out / name).symlink_to(tmp_path)
    with pytest.raises(FileError, match=f"{name} is a symbolic link"):
        tilth.lab.writeup(texts, out=out, only=["unicode"], **TINY)


def test_numbers_are_those_of_the_separate_commands(written, texts):
    out, _ = written
    base = {name: TINY[name] for name in ("steps", "recipe", "batch_size", "changes")}
    alone = tilth.lab.corpora(texts, out=out.parent / "alone", **base)
    ours = part(written, "corpora")
    assert ours.answer.startswith(alone.answer)
    assert "Holds at this size: 1 layer of width 16" in ours.answer
    assert ours.tables == alone.tables
    own = tilth.lab.tokenizers(texts, out=out.parent / "tokenizers", max_bytes=60_000)
    for title in ("Bytes per token of each", "Bytes per token of sampled", "Shared merges"):
        assert table(part(written, "tokenizers"), title) == table(own, title)
    xl = account("gpt2-xl")
    assert f"{xl.parameters.total:,}" in part(written, "accounting").answer
    assert tilth.lab.sgd().tables == part(written, "sgd").tables


def test_the_document_has_its_command(written):
    fold = written[1][1].read_text().partition("How this document was made")[2]
    words = re.search("tilth lab writeup .*", fold)[0].split()
    done = command(*words[1:], "--only", "unicode")
    assert done.returncode == 0, done.stderr  # the folder has the same settings


def test_commands_of_folds_are_commands(written):
    for path in (written[0] / "parts").glob(f"*/{LAB}"):
        words = load_lab(path.parent).folds[0].code.split()
        if words[:3] == ["tilth", "lab", "writeup"] or "--data" in words:
            words = [*words, "--help"]
        assert command(*words[1:]).returncode == 0, words


def test_unicode_section(written, texts):
    rows = dict(table(part(written, "unicode"), "Characters").rows)
    assert rows["repr(chr(0))"] == "'\\x00'"
    assert "invalid continuation byte" in rows["b'\\xc3(' as UTF-8"]
    sizes = {row[0]: row[1:4] for row in table(part(written, "unicode"), "The texts").rows}
    text = "".join(tilth.lab.texts.documents_of(texts[1], "train", 60_000))
    expected = tuple(len(text.encode(name)) for name in ("utf-8", "utf-16-le", "utf-32-le"))
    assert sizes["web"] == expected


def test_vocabulary_section(written, texts):
    found = part(written, "vocabulary")
    growth = table(found, "Growth").rows
    assert len(growth) == 4
    file = written[0] / "texts" / "web.txt"
    pieces = tilth.count_pieces(file, ["<|endoftext|>"])
    assert (growth[-1][1], growth[-1][2]) == (file.stat().st_size, len(pieces))
    steps = table(found, "The ladder").rows
    assert [row[1] for row in steps] == [20] * 4
    assert steps[0][0] == "recount all pairs"


def test_comparing_section(written):
    rows = table(part(written, "comparing"), "Shared merges").rows
    assert all(shared <= min(one, other) for one, other, shared, _ in rows)
    more = table(part(written, "comparing"), "Does more text").rows
    assert {row[0] for row in more} == {"data", "web"}


def test_storing_section(written, texts):
    rows = table(part(written, "storing"), "Sizes on disk").rows
    for row, data in zip(rows, texts, strict=True):
        assert row[4] == "uint16"
        assert row[5] == (data.folder / "train.npy").stat().st_size
    dtypes = {row[0]: row[1] for row in table(part(written, "storing"), "The smallest").rows}
    assert (dtypes[256], dtypes[65_536], dtypes[100_000]) == ("uint8", "uint16", "uint32")
    assert len(table(part(written, "storing"), "The ladder").rows) == 6


def test_a_wrong_layer_is_seen(monkeypatch):
    assert max(gap for _, _, gap in layers.differences()) <= layers.TOLERANCE
    monkeypatch.setattr(layers, "silu", lambda x: x)
    gaps = {reference: gap for _, reference, gap in layers.differences()}
    assert gaps["torch.nn.functional.silu"] > layers.TOLERANCE


def test_bugs_are_made_again(written):
    overlapping, ordinary, positions, clipping, rope = (pair for _, *pair in bugs.measured())
    assert overlapping == [1, 2]
    assert ordinary == [1, len("<|endoftext|>")]
    assert positions[0] > 0.01
    assert positions[1] < 1e-6  # attention is a sum over the tokens before
    assert clipping == [pytest.approx(100, rel=1e-5), 1]
    assert rope[0] < 1e-6
    assert rope[1] > 0.1
    assert part(written, "bugs").answer.startswith("5 of 5 bugs")


def test_hand_counts_are_reconstructed():
    """Each number is that of a write-up, to the digits that it gives."""
    found = {(author, what): number for author, what, _, number in reconstructions()}
    assert found["D", "parameters"] == figures()["parameters"].values["D"]
    assert found["E", "parameters"] == figures()["parameters"].values["E"]
    assert found["C", "parameters"] == "8,508,230,400"
    assert found["A", "bytes to load"] == "68 billion bits"
    for author, digits in (("C", 2), ("D", 3), ("E", 3)):
        given = float(figures()["forward_flops"].values[author])
        assert f"{float(found[author, 'forward FLOPs']):.{digits}e}" == f"{given:.{digits}e}"
    assert f"{float(found['A', 'forward FLOPs']):.2e}" == "4.19e+12"
    for author, given in (("D", 146.9e12), ("E", 145.5e12), ("A", 67.1e12)):
        assert math.isclose(float(found[author, "the same at 16,384"]), given, rel_tol=1e-3)
    assert "17.4 years" in found["B", "A100 time"]
    assert abs(int(found["A", "A100 time"].split()[0].replace(",", "")) - 6115) <= 2
    assert abs(int(found["C", "A100 time"].split()[0].replace(",", "")) - 4651) <= 3


def test_largest_batches_and_days(written):
    found = part(written, "adamw")
    assert table(found, "The largest batch").rows[0][:2] == ("80 GB", 2)
    assert table(found, "The largest batch").rows[1][:2] == ("80 GiB", 3)
    assert "6,584 days" in found.answer


def test_figures_have_known_authors_and_reasons():
    for figure in figures().values():
        assert figure.values.keys() <= set(AUTHORS)
        assert figure.values
        assert figure.reason.endswith(".")


def test_generation_section(written):
    found = part(written, "generation")
    assert [quote.title for quote in found.quotes[:3]] == ["Story 1", "Story 2", "Story 3"]
    assert all(quote.text.startswith("Once upon a time") for quote in found.quotes)
    assert len(found.tables[0].rows) == len(generating.SAMPLERS)


def test_the_vocabulary_warnings_are_silenced_only_meanwhile(written):
    assert logging.getLogger("tilth.tokenizer").level == logging.NOTSET


def test_from_the_command_line(tmp_path):
    words = ["--budget", "1s", "--max-bytes", "40000", "--only", "unicode", "--out", "w"]
    done = command("lab", "writeup", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Wrote w/writeup.html, w/writeup.md\n"
    assert (tmp_path / "w" / "corpora-made" / "python" / "manifest.json").exists()
    done = command("lab", "writeup", "--only", "unicod", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_short_form(tmp_path):
    """All sections by a budget: minutes."""
    done = command("lab", "writeup", "--budget", "5m", "--out", "w", cwd=tmp_path, timeout=3600)
    assert done.returncode == 0, done.stderr
    markdown = (tmp_path / "w" / "writeup.md").read_text()
    assert all(f"\n## {n}. " in markdown for n in range(1, 13))
    for name in PROBLEMS:
        assert name.replace("_", r"\_") in markdown
    again = command("lab", "writeup", "--budget", "5m", "--out", "w", cwd=tmp_path, timeout=60)
    assert again.returncode == 0, again.stderr
