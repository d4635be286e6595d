"""A floor counts each distinct row once: against rows listed one by one."""

from dataclasses import replace

import pytest
import torch

import kernels
from kernels import gates
from kernels.unavoidable import distinct_read, unavoidable


def nbytes(*tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


@pytest.mark.parametrize("name", kernels.KERNELS)
def test_never_more_than_the_kernel_asks_for_nor_than_there_is(name, device):
    for shape in gates.module(name).SMALL:
        inputs = shape.arguments(device)
        output = gates.call(name, shape, inputs, "torch")
        least, asked = unavoidable(name, shape, inputs, output), gates.module(name).expected(shape)
        assert 0 < least["bytes_read"] <= asked["bytes_read"], shape.label
        tensors = [value for value in inputs.values() if isinstance(value, torch.Tensor)]
        assert least["bytes_read"] <= nbytes(*tensors), shape.label
        assert 0 < least["bytes_written"] <= min(asked["bytes_written"], nbytes(output))
        assert least["flops"] == asked["flops"]


@pytest.mark.parametrize("name, entry, window", [
    ("sparse_attention", "entry_BSD", "window_BWD"),
    ("sparse_attention_fp4", "entry_BSY", "window_BWZ"),
])
@pytest.mark.parametrize("number", [0, 1, 2, 3, 4])
def test_a_chosen_row_counts_once_for_all_tokens(name, entry, window, number, device):
    shape = gates.module(name).SMALL[number]
    inputs = shape.arguments(device)
    needed = nbytes(inputs["query_BTHD"], inputs["index_BTk"], inputs["window_lengths"],
                    inputs["sink_H"])
    if inputs[entry] is not None:
        rows = {(b, s) for b, lists in enumerate(inputs["index_BTk"].tolist())
                for chosen in lists for s in chosen if s >= 0}
        needed += len(rows) * nbytes(inputs[entry][0, 0])
    if inputs[window] is not None:
        rows = set()
        for b in range(shape.batch):
            length = shape.lengths[b] if shape.lengths else shape.rows
            for t in range(shape.tokens):
                own = length - shape.tokens + t
                first = max(0, own + 1 - (shape.reach or shape.rows))
                rows |= {(b, w) for w in range(first, own + 1)}
        needed += len(rows) * nbytes(inputs[window][0, 0])
    assert distinct_read(inputs) == needed
    if number == 0:  # five tokens, nine of 37 entries each, and windows that overlap
        assert gates.module(name).expected(shape)["bytes_read"] > 1.2 * needed


def test_prefill_reads_keys_once(device):
    flash = gates.module("flash_attention")
    shape = replace(flash.SMALL[0], tokens=400, entries=400, window=None, lengths=None)
    inputs = shape.arguments(device)
    once = nbytes(inputs["query_BTHD"], inputs["key_BSKD"], inputs["value_BSKD"])
    assert flash.expected(shape)["bytes_read"] > 1.2 * once  # several blocks read keys again
    assert unavoidable("flash_attention", shape, inputs, inputs["query_BTHD"])["bytes_read"] == once


@pytest.mark.parametrize("number", [1, 6])  # a cache in one piece, and one in pages
def test_what_a_window_and_lengths_hide_is_not_read(number, device):
    shape = gates.module("decode_attention").SMALL[number]
    inputs = shape.arguments(device)
    rows = sum(min(length, shape.window) for length in shape.lengths)
    row = shape.kv_heads * 2 * shape.head_dim * 4
    rest = nbytes(inputs["query_BTHD"], inputs["lengths"], inputs.get("block_table"))
    assert distinct_read(inputs) == rows * row + rest


def test_only_experts_that_were_chosen(device):
    shape = gates.module("moe_experts").SMALL[3]
    inputs = shape.arguments(device)
    chosen = {e for row in inputs["experts_Nk"].tolist() for e in row}
    assert len(chosen) < shape.experts
    assert distinct_read(inputs) == (
        nbytes(inputs["x_NX"], inputs["experts_Nk"], inputs["weights_Nk"])
        + len(chosen) * 3 * shape.width * shape.ffn * 4)


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_scores_are_read_where_there_is_a_choice(number, device):
    shape = gates.module("select_topk").SMALL[number]
    inputs = shape.arguments(device)
    scores = 0
    for b in range(shape.batch):
        start = shape.start[b] if shape.start else shape.entries * shape.ratio - shape.tokens
        for t in range(shape.tokens):
            seen = range(min(shape.entries, (start + t + 1) // shape.ratio))
            if shape.keep:
                kept = set(inputs["blocks_BTJ"][b, t].tolist())
                seen = [s for s in seen if s // shape.block in kept]
            scores += len(seen) if len(seen) > shape.k else 0
    rest = nbytes(inputs["start"], inputs.get("blocks_BTJ"))
    assert distinct_read(inputs) == scores * 4 + rest and scores > 0
