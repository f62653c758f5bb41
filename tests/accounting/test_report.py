"""The tables contain the numbers of an account."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.accounting.configs import configs
from tilth.accounting import HARDWARE, account, total_bytes
from tilth.accounting.report import WIDTH, plain, render, shares_table
from tilth.formatting import format_bytes, format_duration, scientific


def test_escape_sequences_in_a_name_are_escaped():
    name = "\x1b[31mrun"
    values = account("tiny").to_dict() | {"name": name}
    assert "\x1b" not in render(values)
    table = shares_table(f"{name}, by size", "shape", {name: {"head": 1}})
    assert table.title == "\\x1b[31mrun, by size"
    assert list(table.columns[0].cells) == ["\\x1b[31mrun"]


def test_gpt2_xl():
    text = str(account("gpt2-xl", batch_size=1024, steps=400_000, hardware="a100"))
    for part in (
        "OpenAI's own has 1,557,611,200 parameters",
        "2,127,057,600",
        "8,508,230,400",
        "8.51 GB",
        "7.92 GiB",
        "1,006,632,960,000",
        "322,122,547,200",
        "3,019,898,880,000",
        "164,682,137,600",
        "4,513,336,524,800",
        "14 operations per parameter",
        "15,517,753,344 bytes x batch + 34,032,921,600",
        "6,584 days",
        "NVIDIA A100 data sheet",
    ):
        assert part in text


def test_small_models_in_mebibytes():
    assert "86.58 MiB" in str(account("tinystories"))  # 22,696,448 parameters x 4 / 2**20


@settings(max_examples=40)
@given(
    configs(),
    st.sampled_from(["adamw", "muon", "sgd"]),
    st.sampled_from(["float32", "tf32", "bfloat16", "float16"]),
    st.sampled_from([None, *HARDWARE.values()]),
)
def test_any_model(config, optimizer, dtype, device):
    if device is not None and dtype not in device.flops_per_second:
        device = None
    text = str(account(config, optimizer=optimizer, dtype=dtype, hardware=device, steps=3))
    assert f"{account(config).parameters.total:,}" in text
    assert all(len(line) <= WIDTH for line in text.splitlines())
    assert "…" not in text  # nothing was truncated
    if config.tie_embeddings:
        assert "tied to the embedding" in text


def row_of(text, name):
    (line,) = [line for line in text.splitlines() if line.strip().startswith(f"{name}  ")]
    return re.split(r" {2,}", line.strip())[1:]


def test_batch():
    result = account("gpt2-xl", batch_size=3)
    text = str(result)
    forward = 3 * 4_513_336_524_800
    assert row_of(text, "forward")[0] == f"{forward:,}"
    assert row_of(text, "backward")[0] == f"{2 * forward:,}"
    assert row_of(text, "per step")[0] == f"{3 * forward:,}"
    lists = (result.textbook_activations, result.activations)
    for component in ("attention", "feed-forward", "head and loss"):
        saved = [[each for each in group if each.component == component] for group in lists]
        shown = row_of(text, f"activations: {component}")
        assert shown[:2] == [format_bytes(total_bytes(each).bytes(3)) for each in saved]


def test_variants():
    text = str(account("gpt2-small", norm="post", num_kv_heads=3, recompute=True))
    assert "norm post, num_kv_heads 3" in text.replace("\n", " ")
    assert "backward with recomputation" in text


def test_shares():
    table = shares_table("t", "x", {"a": {"one": 1, "two": 3}, "b": {"one": 2, "two": 0}})
    cells = [list(column.cells) for column in table.columns]
    assert cells == [["a", "b"], ["4", "2"], ["25.0%", "100.0%"], ["75.0%", "0.0%"]]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (scientific(4_513_336_524_800), "4.513e12"),
        (scientific(0.0123), "1.230e-02"),
        (plain(157_996.7), "157,997"),
        (plain(2.0), "2"),
        (format_bytes(999), "999 bytes"),
        (format_bytes(15_517_753_344), "15.52 GB"),
        (format_duration(0.25), "0.25 s"),
        (format_duration(119), "119 s"),
        (format_duration(600), "10.0 minutes"),
        (format_duration(10 * 3600), "10.0 hours"),
        (format_duration(5 * 86400), "5.0 days"),
        (format_duration(6584 * 86400), "6,584 days (18.0 years)"),
    ],
)
def test_number_formats(found, expected):
    assert found == expected
