"""The end token, from `tokenize --end-token` to data folder, run, samples and generated text."""

import json

import tilth
from tilth.config.training import MachineConfig, OptimizerConfig, TrainingConfig, WatchConfig


def test_model_trained_with_a_custom_end_token_stops_at_it(tmp_path):
    """Documents of a few letters: after 60 steps the model has learned that `</s>` follows them."""
    text = tmp_path / "text.txt"
    text.write_text("abc<|endoftext|>" * 400)
    specials = ["<|endoftext|>", "</s>"]
    tokenizer = tilth.train_tokenizer(texts=["abc"], vocab_size=258, special_tokens=specials)
    end_id = tokenizer.special_tokens["</s>"]
    data = tilth.tokenize(
        [text], tokenizer, tmp_path / "data", valid_corpus=[text], end_token="</s>"
    )
    assert (data.end_token, data.end_token_id) == ("</s>", end_id)
    model = tilth.ModelConfig(258, 16, d_model=16, num_layers=1, num_heads=2, d_ff=64)
    config = TrainingConfig(
        str(data.folder),
        model,
        steps=60,
        batch_size=8,
        optimizer=OptimizerConfig(lr=1e-2),
        machine=MachineConfig("cpu", "float32", compile=False, threads=1),
        watch=WatchConfig(sample_every=60, sample_prompt="a", sample_tokens=50, temperature=0.0),
    )
    *_, last = tilth.train(config, tmp_path / "run")
    assert last.sample == "abc"
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (manifest["end_token"], manifest["version"]) == ("</s>", 1)

    for backend in ("native", "torch"):
        trained = tilth.load(tmp_path / "run", backend=backend)
        assert (trained.end_token, trained.end_id) == ("</s>", end_id)
        stream = trained.generate("a", temperature=0.0)
        assert ("".join(stream), stream.stop_reason) == ("bc", "end token")
        assert trained.generate_batch(["a", "ab", ""], temperature=0.0) == ["bc", "c", "abc"]
        assert trained.score("abc")[0].log_probability > -1  # after `</s>`, a document begins
