"""One prompt, every generation: what is printed is what the model says and holds."""

import pytest
import torch

from tinymodels import checkpoints, data, ledger, side_by_side, tokenizer
from tinymodels.dice import Dice
from tinymodels.generate import generate
from tinymodels.quality import FOLLOWS, OWN

PROMPT = tokenizer.encode(
    "Ada puts the key in the drawer. Ben smiles.\nWhere is the key? The key is in the"
)
DRAWER = tokenizer.word_id("drawer")


def test_an_answer_is_what_the_model_says_and_holds():
    answer = side_by_side.ask("tiny_v1", "text", PROMPT, DRAWER, 6)
    model = checkpoints.load(f"tiny_v1-text-seed{answer.seed}")
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT]))[0, -1]
        written = generate(model, torch.tensor([PROMPT]), 6)[0, len(PROMPT) :].tolist()
    said = tokenizer.decode(written, line_start=False).strip()
    assert said.startswith(answer.writes.strip()) and answer.writes.endswith(".")
    assert answer.probability == pytest.approx(logits.softmax(-1)[DRAWER].item(), abs=0.02)
    assert answer.rank == 1 + (logits > logits[DRAWER]).sum().item()
    held = ledger.exact(checkpoints.preset("tiny_v1"), len(PROMPT))
    assert (answer.growing, answer.held) == (held["global"], held["total"])


def test_a_wrong_word_has_a_lower_rank():
    wrong = side_by_side.ask("tiny_v1", "text", PROMPT, tokenizer.word_id("tent"))
    assert wrong.rank > 1 and wrong.probability < 0.1


def test_the_table_has_a_line_for_each_generation_or_says_what_is_not_trained(monkeypatch):
    game = data.recall(Dice("side by side test", 1), 40, 3, 1)
    at = game.answers[0]
    only = ["tiny_v1-recall-seed1", "tiny_v2_lite-recall-seed0"]
    monkeypatch.setattr(checkpoints, "available", lambda: only)
    lines = side_by_side.table("recall", game.tokens[:at], game.tokens[at]).split("\n")
    assert lines[0] == side_by_side.HEAD and len({line.rindex("   ") for line in lines[:3]}) == 1
    assert [line.split()[0] for line in lines[1:3]] == ["V1", "V2-Lite"]
    assert lines[3:] == ["not trained on this yet: V2, V3, V3.2, V4, V4.1"]
    assert len(FOLLOWS) == 8 and OWN not in " ".join(lines)


def test_nothing_to_read_and_nothing_to_write_are_refused():
    with pytest.raises(ValueError, match="0 tokens and 1 new"):
        side_by_side.ask("tiny_v1", "text", [], DRAWER)
    with pytest.raises(ValueError, match="0 new"):
        side_by_side.ask("tiny_v1", "text", PROMPT, DRAWER, 0)
