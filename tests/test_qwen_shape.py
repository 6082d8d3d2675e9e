"""The file that `make_qwen_shape.py` writes: a model that the profile covers, of the released one's width."""

import make_qwen_shape
import numpy as np
import pytest

from harness import profiles, runners


@pytest.mark.parametrize("output", [False, True])
def test_one_layer_of_the_shape_runs_inside_every_contract(tmp_path, monkeypatch, output):
    """By the second, which checks them: all stages, one row each, and ids of the vocabulary."""
    monkeypatch.setattr(make_qwen_shape, "LAYERS", 1)
    monkeypatch.setattr(make_qwen_shape, "VOCABULARY", 320)
    path = tmp_path / "shape.gguf"
    make_qwen_shape.write(path, output)
    profile, seen = profiles.find("dyadic-q16"), []
    finished = runners.ReferenceRunner("second", profile, str(path)).forward([319], None, seen.append)
    dims = {stage.name: stage.dims for stage in seen}
    assert len(dims) == 17 + 4 and dims["l0.act"] == (1, make_qwen_shape.MLP) and dims["logits"] == (1, 320)
    assert 0 <= finished.greedy[0] < 320


def test_the_whole_shape_is_that_of_the_released_model():
    """494,032,768 parameters; with a separate output matrix 151,936 x 896 more."""
    counts = [sum(int(np.prod(dims)) for _, dims, _ in make_qwen_shape.tensors(output)) for output in (False, True)]
    assert counts == [494_032_768, 494_032_768 + 151_936 * 896]
