"""Mistakes of chapter 02 as a learner would write them: other code, same answer, same name."""

import torch

from grading import check


def test_the_lens_with_loops_and_in_nats():
    def lens(stream, gain, head, answer, base=2.0):
        ranks, entropies = [], []
        for layer in stream:
            normed = torch.nn.functional.rms_norm(layer, layer.shape[-1:], gain, eps=1e-6)
            p = torch.softmax(normed @ head.T, -1)
            own = p[range(len(answer)), answer]
            ranks.append(1 + (p > own[:, None]).sum(1))
            entropies.append(-torch.xlogy(p, p).sum(1) / torch.log(torch.tensor(base)))
        return torch.stack(ranks), torch.stack(entropies)

    assert check("02.1", lens).status == "passed"
    result = check("02.1", lambda *given: lens(*given, base=torch.e))
    assert (result.status, result.earned, result.misconception) == ("partly", 2, "nats")


def test_bytes_by_another_road():
    def by_owner(heads, source, dim, tokens, batch, bits):
        return sum(heads[i] for i in set(source)) * dim * tokens * batch * bits / 4

    assert check("02.2", by_owner).status == "passed"
    all_layers = check("02.2", lambda h, s, d, t, b, bits: 2 * sum(h) * d * t * b * bits // 8)
    assert (all_layers.status, all_layers.misconception) == ("partly", "all_layers")


def test_a_probe_by_lstsq_and_one_without_the_constant():
    def probe(train, label, new, classes, ridge, constant=1.0):
        a, n = (torch.nn.functional.pad(x, (0, 1), value=constant) for x in (train, new))
        rows = torch.cat([a, ridge**0.5 * torch.eye(a.shape[1])])
        y = torch.nn.functional.one_hot(label, classes).float()
        wanted = torch.cat([y, torch.zeros(a.shape[1], classes)])
        return n @ torch.linalg.lstsq(rows, wanted).solution

    assert check("02.3", probe).status == "passed"
    assert check("02.3", lambda *given: probe(*given, constant=0.0)).misconception == "no_one"


def test_the_folded_line_in_another_order_and_with_a_unit_too_many():
    def backwards(folds, also=()):
        n = 2**folds
        units = [(0.0, n), *((i / n, -2 * n if i % 2 else 2 * n) for i in range(1, n)), *also]
        start, turn = zip(*reversed(units))
        return torch.tensor(start), torch.tensor(turn, dtype=torch.float32)

    assert check("02.4", backwards).status == "passed"
    result = check("02.4", lambda folds: backwards(folds, [(1.0, 3.0)]))
    assert (result.status, result.earned, result.misconception) == ("partly", 2, "unit_at_the_end")
    assert "fewer units" in check("02.4", lambda folds: backwards(folds, [(0.3, 0.0)] * 3)).message
    assert check("02.4", lambda folds: (0.0, 1.0)).status in ("wrong", "error")


def test_an_entropy_that_breaks_at_sure_guesses_is_found():
    """p log p with p = 0, as a learner would write it, is NaN."""

    def lens(stream, gain, head, answer):
        logits = torch.nn.functional.rms_norm(stream, gain.shape, gain, 1e-6) @ head.T
        own = logits.gather(-1, answer.repeat(len(stream), 1).unsqueeze(-1))
        p = logits.softmax(-1)
        return 1 + (logits > own).sum(-1), -(p * p.log2()).sum(-1)

    result = check("02.1", lens)
    assert (result.status, result.misconception) == ("partly", "zero_log_zero")
    assert "entropy is NaN" in result.message


def test_a_pair_may_be_a_list_and_what_is_no_pair_is_told_so():
    def lens(stream, gain, head, answer):
        logits = torch.nn.functional.rms_norm(stream, gain.shape, gain, 1e-6) @ head.T
        own = logits.gather(-1, answer.repeat(len(stream), 1).unsqueeze(-1))
        entropy = torch.distributions.Categorical(logits=logits).entropy()
        return [1 + (logits > own).sum(-1), entropy / torch.log(torch.tensor(2.0))]

    assert check("02.1", lens).status == "passed"
    told = check("02.1", lambda *given: lens(*given)[0]).message
    assert "the answer should be a pair: rank, entropy, and one Tensor of shape" in told
    told = check("02.1", lambda *given: (*lens(*given), 1)).message
    assert "a pair: rank, entropy, and a value of type tuple of 3 came back" in told
    told = check("02.4", lambda folds: (torch.zeros(2), torch.zeros(3))).message
    assert "start and turn should be of one length" in told


def test_lists_that_an_answer_changes_are_noticed():
    def empties(heads, source, dim, tokens, batch, bits):
        kept = 0
        while heads:
            i = len(heads) - 1
            kept += heads.pop() * (source[i] == i)
        return 2 * kept * dim * tokens * batch * bits // 8

    assert "changed its input `kv_heads`" in check("02.2", empties).message
