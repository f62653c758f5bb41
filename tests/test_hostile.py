"""Mutated files and arguments end in one sentence: no signal, no hang, no traceback.

The default suite runs some thousand cases. The campaign runs as many as it is told to, most of them
against readers (2 ms a case), one in fifty against verbs (20 ms or more):

    TILTH_SEED=1 TILTH_CASES=1000000 python -m pytest -m slow tests/test_hostile.py
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hostile.batches import run_in_batches
from tests.hostile.campaign import NUMBER_OPTIONS, WORD_OPTIONS, Campaign
from tests.hostile.mutations import make_consistent
from tests.hostile.readers import Readers

ROOT = Path(__file__).parents[1]


def run_cases(level, seed, count):
    """Return the lines of a campaign, a line of JSON for each problem."""
    words = ("--seed", seed, "--count", count)
    command = [sys.executable, "-m", "tests.hostile.campaign", level, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout[:20_000]


@pytest.mark.parametrize(("level", "count"), [("verbs", 300), ("readers", 2_000)])
def test_some_cases(level, count):
    assert not run_cases(level, 0, count)


@pytest.mark.parametrize("options", [NUMBER_OPTIONS, WORD_OPTIONS], ids=["numbers", "words"])
def test_the_options_of_the_campaign_exist(options):
    wide = os.environ | {"COLUMNS": "200"}  # names are not cut
    for verb, names in options.items():
        words = verb.replace("account ranks", "account").split()
        command = [sys.executable, "-m", "tilth", *words, "--help"]
        said = subprocess.run(command, env=wide, capture_output=True, text=True, check=True).stdout
        assert not {*names.split()} - {*re.findall(r"--[\w.-]+", said)}, verb


@pytest.mark.slow
@pytest.mark.parametrize(("level", "share"), [("verbs", 0.02), ("readers", 0.98)])
def test_campaign(level, share):
    seed, total = (int(os.environ.get(f"TILTH_{name}", "1")) for name in ("SEED", "CASES"))
    assert not run_cases(level, seed, round(share * max(total, 50_000)))


def test_files_without_a_mutation_are_read(tmp_path):
    """With recomputed checksums too; else mutated files would only reach the checksums."""
    campaign = Campaign(0, tmp_path)
    readers = Readers(0, campaign.edition, campaign.corpora, campaign.models, tmp_path)
    for several, content in readers.subjects:
        for reader in several:
            readers.write(content)
            make_consistent(readers.folder)
            for name, data in content.items():
                is_manifest = name.endswith(".json") and b'"checksum' in data
                assert is_manifest or (readers.folder / name).read_bytes() == data
            reader(readers.folder)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # its threads are idle
def test_crashes_and_hangs_of_cases_are_found():
    def problem_of(number):
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        elif number == 7:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM, signal.SIGTERM])
            time.sleep(60)
        elif number == 11:
            raise RuntimeError("of the campaign itself")
        return ("a problem", ["words"]) if number % 5 == 0 else (None, [])

    found = {each["case"]: each["problem"] for each in run_in_batches(problem_of, range(13), 1, 4)}
    assert found == {
        **dict.fromkeys((0, 5, 10), "a problem"),
        **{3: "ended with -9", 7: "no progress in 1 s", 11: "ended with 70"},
    }
