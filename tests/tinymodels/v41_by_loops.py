"""V4.1 once more, slowly: one text, one token, one head, one row at a time, in float64.

It shares nothing with `tinymodels`: numpy, loops, the released tensor names, and the released
description (a dict). Nothing is rounded and nothing is cached. It is the judge for shapes that no
released numbers exist for.
"""

import math

import numpy as np


def rms_norm(x, weight, eps):
    return x / math.sqrt(float(x @ x) / len(x) + eps) * weight


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


# ---------------------------------------------------------------- positions


def radians(c, far):
    """Per position, of each adjacent pair. far: layers that read more than their window."""
    half, dim = c["rope_head_dim"] // 2, c["rope_head_dim"]
    base = c["compress_rope_theta"] if far else c["rope_theta"]
    each = [base ** (-2 * i / dim) for i in range(half)]
    if not far or not c["original_seq_len"]:
        return each

    def pair(turns):  # the pair that turns so often over the original context
        return dim * math.log(c["original_seq_len"] / (2 * math.pi * turns)) / 2 / math.log(base)

    low = max(0, math.floor(pair(c["beta_fast"])))
    high = min(dim - 1, math.ceil(pair(c["beta_slow"])))
    mixed = []
    for i, freq in enumerate(each):
        ramp = (i - low) / (high - low if high > low else 0.001)
        slow = min(1.0, max(0.0, ramp))
        mixed.append(slow * freq / c["rope_factor"] + (1 - slow) * freq)
    return mixed


def turned(x, position, each):
    """The last numbers of x, pair by pair, as complex numbers times a unit one."""
    x = np.array(x)
    for i, freq in enumerate(each):
        at = len(x) - 2 * len(each) + 2 * i
        z = complex(x[at], x[at + 1]) * complex(
            math.cos(position * freq), math.sin(position * freq)
        )
        x[at], x[at + 1] = z.real, z.imag
    return x


# ---------------------------------------------------------------- streams


def mixes(c, w, name, copies):
    """How one token's copies are read next, written now, and mixed now."""
    n, eps = c["hc_mult"], c["hc_eps"]
    flat = copies.reshape(-1)
    raw = w[f"{name}_fn"] @ flat / math.sqrt(float(flat @ flat) / len(flat) + c["norm_eps"])
    scale, base = w[f"{name}_scale"], w[f"{name}_base"]
    pre = sigmoid(raw[:n] * scale[0] + base[:n]) + eps
    post = 2 * sigmoid(raw[n : 2 * n] * scale[1] + base[n : 2 * n])
    comb = (raw[2 * n :] * scale[2] + base[2 * n :]).reshape(n, n)
    comb = np.exp(comb - comb.max(axis=1, keepdims=True))
    comb = comb / comb.sum(axis=1, keepdims=True) + eps
    comb = comb / (comb.sum(axis=0, keepdims=True) + eps)
    for _ in range(c["hc_sinkhorn_iters"] - 1):
        comb = comb / (comb.sum(axis=1, keepdims=True) + eps)
        comb = comb / (comb.sum(axis=0, keepdims=True) + eps)
    return pre, post, comb


def write(c, w, name, copies, found):
    pre, post, comb = mixes(c, w, name, copies)
    new = np.zeros_like(copies)
    for j in range(len(copies)):
        new[j] = post[j] * found
        for i in range(len(copies)):
            new[j] += comb[i, j] * copies[i]
    return new, pre


def read(copies, pre):
    return sum(p * copy for p, copy in zip(pre, copies, strict=True))


# ---------------------------------------------------------------- far entries


def pooled(c, w, layer, inputs):
    """The latents of all complete groups, before they are turned."""
    m, own = c["compress_ratios"][layer], f"layers.{layer}.attn.compressor."
    values = [w[own + "wkv.weight"] @ x for x in inputs]
    if m > 1:
        gates = [w[own + "wgate.weight"] @ x for x in inputs]
        groups = []
        for first in range(0, len(inputs) - m + 1, m):
            heap = np.exp(np.array(gates[first : first + m]))
            groups.append((heap * values[first : first + m]).sum(0) / heap.sum(0))
        values = groups
    return [rms_norm(v, w[own + "norm.weight"], c["norm_eps"]) for v in values]


def index_scores(c, w, layer, latent, x, position, keys, each):
    """One token's score of each key."""
    own, heads = f"layers.{layer}.attn.indexer.", c["index_n_heads"]
    queries = np.split(w[own + "wq_b.weight"] @ latent, heads)
    queries = [turned(q, position, each) for q in queries]
    weights = w[own + "weights_proj.weight"] @ x / math.sqrt(heads * c["index_head_dim"])
    return [sum(a * max(0.0, q @ key) for a, q in zip(weights, queries)) for key in keys]


def best(score, allowed, k):
    """Of equal ones the first."""
    return sorted(sorted(allowed, key=lambda j: (-score[j], j))[:k])


def blocks_kept(score, block, keep):
    """Which positions the candidate source leaves to later layers."""
    starts = list(range(0, len(score), block))
    if not starts:
        return set()
    worth = {s: max(score[s : s + block]) for s in starts}
    worth[starts[-1]] = math.inf  # it holds the newest position
    kept = sorted(starts, key=lambda s: (-worth[s], s))[:keep]
    return {j for s in kept for j in range(s, min(s + block, len(score)))}


# ---------------------------------------------------------------- layers


def publish(c, w, layer, inputs, far, each):
    """An owner's entries and keys: stored ones as they are, and what the tokens after them add."""
    own, m = f"layers.{layer}.attn.indexer.", c["compress_ratios"][layer]
    far["entries"], far["keys"] = map(list, far["stored"].get(layer, ([], [])))
    known = len(far["entries"])
    for j, latent in enumerate(pooled(c, w, layer, inputs[known * m :]), known):
        key = rms_norm(w[own + "wk.weight"] @ latent, w[own + "k_norm.weight"], c["norm_eps"])
        far["entries"].append(turned(latent, j * m, each))
        far["keys"].append(turned(key, j * m, each))
    far["made"][layer] = far["entries"], far["keys"]


def attention(c, w, layer, inputs, far, first):
    """What each token from `first` on finds. far: what earlier layers published, and this one
    publishes: entries, keys, choice and candidates. No window reaches back behind `first`."""
    own, m, reach = f"layers.{layer}.attn.", c["compress_ratios"][layer], c["window_size"]
    each, heads = radians(c, m > 0), c["n_heads"]
    if layer in c["kv_source_layers"]:
        publish(c, w, layer, inputs, far, each)
    if layer in c["index_source_layers"]:
        far["choice"] = {}
    kv, norm = w[own + "wkv.weight"], w[own + "kv_norm.weight"]
    window = [None] * first + [
        turned(rms_norm(kv @ inputs[t], norm, c["norm_eps"]), t, each)
        for t in range(first, len(inputs))
    ]
    found = {}
    for t in range(first, len(inputs)):
        x = inputs[t]
        latent = rms_norm(w[own + "wq_a.weight"] @ x, w[own + "q_norm.weight"], c["norm_eps"])
        if layer in c["index_source_layers"]:
            visible = (t + 1) // m
            score = index_scores(c, w, layer, latent, x, t, far["keys"][:visible], each)
            allowed = range(visible)
            if layer == c.get("candidate_source_layer"):
                size, keep = c["candidate_block_size"], c["candidate_topk_blocks"]
                far.setdefault("pool", {})[t] = blocks_kept(score, size, keep)
            elif "pool" in far:
                allowed = far["pool"][t]
            far["choice"][t] = best(score, allowed, c["index_topk"])
        rows = window[max(first, t - reach + 1) : t + 1]
        if m:
            rows = rows + [far["entries"][j] for j in far["choice"][t]]
        out = []
        for h, query in enumerate(np.split(w[own + "wq_b.weight"] @ latent, heads)):
            query = turned(query, t, each)
            score = [query @ row / math.sqrt(len(query)) for row in rows]
            heap = [math.exp(s) for s in score]
            total = sum(heap) + math.exp(w[own + "attn_sink"][h])
            mixed = sum(e * row for e, row in zip(heap, rows)) / total
            out.append(turned(mixed, -t, each))
        out = np.split(np.concatenate(out), c["o_groups"])
        down = np.split(w[own + "wo_a.weight"], c["o_groups"])
        found[t] = w[own + "wo_b.weight"] @ np.concatenate([a @ o for a, o in zip(down, out)])
    return found


def feed_forward(c, w, layer, x):
    own, limit = f"layers.{layer}.ffn.", c["swiglu_limit"]

    def expert(name):
        gate, up = w[f"{own}{name}.w1.weight"] @ x, w[f"{own}{name}.w3.weight"] @ x
        if limit:
            gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return w[f"{own}{name}.w2.weight"] @ (gate * sigmoid(gate) * up)

    score = np.sqrt(np.log1p(np.exp(w[own + "gate.weight"] @ x)))
    chosen = best(score + w[own + "gate.bias"], range(len(score)), c["n_activated_experts"])
    total = sum(score[e] for e in chosen) + 1e-20
    routed = sum(score[e] / total * c["route_scale"] * expert(f"experts.{e}") for e in chosen)
    return routed + expert("shared_experts")


def logits(c, w, ids, decoder_from=0, start=0, stored=None, made=None):
    """{t: logits after token t}. decoder_from: the first token that the decoder runs.

    After a prefix hit start is the first token that is run again, and stored has each owner's
    entries and keys of the prefix. made is filled with all of them, for a later hit.
    """
    copies = [np.tile(w["embed.weight"][i], (c["hc_mult"], 1)) for i in ids]
    pre = [np.eye(c["hc_mult"])[0] for _ in ids]
    far = {"stored": stored or {}, "made": {} if made is None else made}
    half, decoder_from = c["kv_source_layers"][-1], max(start, decoder_from)
    for layer in range(c["n_layers"]):
        name = f"layers.{layer}."
        first = decoder_from if layer >= half else start
        inputs = [None] * start + [
            rms_norm(read(copies[t], pre[t]), w[name + "attn_norm.weight"], c["norm_eps"])
            for t in range(start, len(ids))
        ]
        found = attention(c, w, layer, inputs, far, first)
        for t in range(first, len(ids)):
            copies[t], pre[t] = write(c, w, name + "hc_attn", copies[t], found[t])
            x = rms_norm(read(copies[t], pre[t]), w[name + "ffn_norm.weight"], c["norm_eps"])
            said = feed_forward(c, w, layer, x)
            copies[t], pre[t] = write(c, w, name + "hc_ffn", copies[t], said)
    ends = {t: read(copies[t], pre[t]) for t in range(decoder_from, len(ids))}
    norm = w["norm.weight"]
    return {t: w["head.weight"] @ rms_norm(x, norm, c["norm_eps"]) for t, x in ends.items()}
