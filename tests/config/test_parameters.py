"""Names and shapes of parameters equal those of the torch model, for every variant."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.model.test_transformer import CONFIG, VARIANTS
from tilth.config.limits import MAX_LAYERS, MAX_VOCAB_SIZE
from tilth.config.parameters import check_parameters, drop_tied_head, parameter_shapes
from tilth.model import TransformerLM


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_shapes_equal_those_of_the_model(changes):
    config = replace(CONFIG, **changes)
    state = TransformerLM(config, device="meta").state_dict()
    assert list(parameter_shapes(config)) == [(name, tuple(w.shape)) for name, w in state.items()]
    check_parameters(config, {name: w.shape for name, w in state.items()})


def test_differences_are_named():
    shapes = dict(parameter_shapes(CONFIG))
    name = "layers.1.ffn.w2.weight"
    for found, sentence in (
        (
            {**shapes, name: (64, 32)},
            r"w2.weight has shape \(64, 32\), and in the model \(32, 64\)",
        ),
        ({**shapes, name: (64 * 32,)}, r"has shape \(2048,\), and in the model"),
        ({**shapes, "bias": (3,)}, "only the checkpoint has bias"),
        (
            {key: shape for key, shape in shapes.items() if key != name},
            f"only the model has {name}",
        ),
    ):
        with pytest.raises(ValueError, match=sentence):
            check_parameters(CONFIG, found)
    tied = replace(CONFIG, tie_embeddings=True)
    check_parameters(tied, shapes)  # other tools write the tied matrix under both names
    with pytest.raises(ValueError, match=r"only the checkpoint has lm_head.weight"):
        check_parameters(tied, {**dict(parameter_shapes(tied)), "lm_head.weight": (97, 31)})


@pytest.mark.parametrize("changes", [{"num_layers": MAX_LAYERS}, {"vocab_size": MAX_VOCAB_SIZE}])
def test_a_huge_config_is_rejected_fast(changes):
    with pytest.raises(ValueError, match=r"only the model has layers\.3\.|in the model \(16777216"):
        check_parameters(replace(CONFIG, **changes), dict(parameter_shapes(CONFIG)))


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_a_tied_head_is_dropped_if_it_is_equal(kind):
    rows = [[1.0, 2.0], [3.0, 4.0]]
    tensors = {"a.token_embeddings.weight": kind(rows), "a.lm_head.weight": kind(rows)}
    drop_tied_head(tensors)
    assert len(tensors) == 2
    drop_tied_head(tensors, "a.")
    assert list(tensors) == ["a.token_embeddings.weight"]
    for other in ([[1.0, 2.0], [3.0, 5.0]], [[1.0, 2.0]], [[1.0, 2.0], [3.0, float("nan")]]):
        tensors["a.lm_head.weight"] = kind(other)
        drop_tied_head(tensors, "a.")
        assert len(tensors) == 2
