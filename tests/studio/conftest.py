"""Fixtures: two runs on disk, one with a chat template, and the application that serves them."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from starlette.testclient import TestClient

from tilth.config.model import ModelConfig
from tilth.config.training import TrainingConfig
from tilth.generation import load
from tilth.model import TransformerLM
from tilth.report.lab_file import Chart, Fold, Lab, Line, Quote, Table, Trial, save_lab
from tilth.runs.checkpoints import HISTORY
from tilth.runs.run import create_run
from tilth.runs.state import CheckpointWriter
from tilth.studio import make_app
from tilth.studio.completions import Limits
from tilth.studio.folder import Folder
from tilth.studio.models import Models
from tilth.tokenizer import Tokenizer

HISTORY_STEPS = [4, 2, 1, 0]
END = "<|endoftext|>"
LAB = Lab(
    "lr",
    "Which learning rate is best?",
    answer="1e-3 <b>is best</b>.",
    command=("tilth", "lab", "lr", "my data"),
    trials=(Trial("0", "1e-3", "a", x=1e-3, state="finished"), Trial("1", "1e-2", "b", x=1e-2)),
    tables=(Table("Losses", ("rate", "loss"), (("1e-3", 2.5), ("1e-2", None))),),
    notes=("One seed each.",),
    charts=(
        Chart("Loss by rate", "rate", "loss", (Line("loss", ((1e-3, 2.5), (1e-2, 3))),), "log"),
    ),
    quotes=(Quote("1e-3", "temperature 0.8", "the <i>mouse</i>"),),
    folds=(Fold("Details", ("More.",), "x = 1"),),
)
HOST = "http://127.0.0.1:8765"
TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with a lab and the runs `plain` and `chatty` of random, large weights."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "lr").mkdir()
    save_lab(folder / "lr", LAB)
    vocab = {i: bytes([i]) for i in range(256)} | {256: b"th", 257: b"the"}
    tokenizer = Tokenizer(vocab, [(b"t", b"h"), (b"th", b"e")], [END])
    shape = {"context_length": 64, "d_model": 32, "num_layers": 2, "num_heads": 4}
    config = TrainingConfig("data", ModelConfig(tokenizer.vocab_size, **shape), steps=5)
    config = config.resolve(device="cpu", dtype="float32", compile=False, threads=1)
    for seed, name in enumerate(("plain", "chatty")):
        run = create_run(folder / name, config, tokenizer, "none")
        torch.manual_seed(seed)
        model = TransformerLM(config.model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(4.0)
        with CheckpointWriter(run.folder, keep=1) as writer:
            writer.save(5, model, SimpleNamespace(state_dict=dict), {"valid_loss": 1.0}, {})
            (run.folder / HISTORY).mkdir()
            for step in HISTORY_STEPS if name == "plain" else ():
                with torch.no_grad():
                    model.lm_head.weight.mul_(0.8)
                writer.save(step, model, None, {}, {})
    (folder / "chatty" / "chat_template.jinja").write_text(TEMPLATE)
    return folder


@pytest.fixture(scope="session")
def model(folder):
    return load(folder / "plain", threads=1)


@pytest.fixture(scope="session")
def client(folder):
    shown = Folder(folder)
    models = Models(shown.models, partial(load, threads=1), rows=4, queue=8)
    limits = Limits(max_tokens=200, seconds=30.0)
    app = make_app(models, limits=limits, folder=shown)
    with TestClient(app, base_url=HOST, raise_server_exceptions=False) as client:
        yield client
