"""Who runs when: the areas of the tower are what a V4.1 runs, moment by moment.

What holds for each widget is asked of this one too, at every setting.
"""

import pytest
import torch
from test_widget_every import *  # noqa: F403 - its tests, for the widget below

from tinymodels.presets import tiny_v4_1
from tinymodels.published import V4_1_FLASH
from tinymodels.transformer import Transformer
from tinymodels.widgets.tower import (
    CHUNKS,
    MOMENTS,
    PROMPTS,
    REPLAY,
    WHO,
    Tower,
    layer_tokens,
    look,
    runs,
)


@pytest.fixture
def widget():
    return Tower()


@pytest.mark.parametrize("prompt", [12, 16, 20, 44])
@pytest.mark.parametrize("who", WHO)
def test_a_model_runs_what_is_drawn(prompt, who):
    """At each moment the tokens that each layer has run, counted by the model's own cache."""
    model = Transformer(tiny_v4_1()).requires_grad_(False)
    tokens = torch.arange(prompt + 3)[None]
    memory = model.new_cache(1, prompt + 3)
    drawn = runs(model.config, prompt, who)
    for moment in range(len(MOMENTS)):
        done = tuple(run for run in drawn if run.moment <= moment)
        if moment < CHUNKS:
            chunk = tokens[:, :prompt].chunk(CHUNKS, dim=1)[moment]
            last = moment == CHUNKS - 1
            if who == "all":
                model.prefill(chunk, memory, exact=True)
            else:
                model.prefill(chunk, memory, last=last)
            if last and who == "ced":
                continue  # the model has caught up already; the tower shows it one moment later
        elif moment > REPLAY:
            at = prompt + moment - REPLAY - 1
            model(tokens[:, at : at + 1], memory)
        assert sum(memory.work.values()) == layer_tokens(model.config, done), moment


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_number_is_the_formula(prompt):
    near = min(prompt, 128)
    assert look(REPLAY, prompt, "ced").number == f"{20 * prompt + 20 * near:,}"
    assert look(REPLAY, prompt, "all").number == f"{40 * prompt:,}"
    assert look(REPLAY + 3, prompt, "ced").number == f"{20 * prompt + 20 * near + 120:,}"


def test_marks_and_words_agree():
    for prompt in PROMPTS:
        for who in WHO:
            for moment in range(len(MOMENTS)):
                view = look(moment, prompt, who)
                now = {a["half"] for a in view.chart["areas"] if a["now"]}
                if moment > REPLAY:
                    assert now == {"encoder", "decoder"} and "written" in view.lines[0]
                elif who == "ced":
                    assert now == {"decoder" if moment == REPLAY else "encoder"}
                else:
                    assert now == (set() if moment == REPLAY else {"encoder", "decoder"})
                assert view.chart["projects"] == (now == {"encoder"})
                area = sum(
                    20 * (1 if a["word"] is not None else (a["end"] - a["at"]) * prompt)
                    for a in view.chart["areas"]
                )
                assert f"{round(area):,}" == view.number


def test_what_cannot_be_drawn_is_named():
    with pytest.raises(ValueError, match="who is 'some'; it can be one of ced, all"):
        runs(V4_1_FLASH, 8, "some")
    with pytest.raises(ValueError, match="prompt of 9 tokens cannot be read in 4 equal chunks"):
        runs(V4_1_FLASH, 9, "ced")
