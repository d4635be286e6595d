"""Chapter 06 in float64 numpy, one token, one head and one entry at a time.

Positions are turned by complex numbers; attention makes every key and value it reads.
"""

from __future__ import annotations

import numpy as np


def normed_latent(x_X, down_CX, norm_C, eps: float) -> np.ndarray:
    latent_C = np.asarray(down_CX, np.float64) @ np.asarray(x_X, np.float64)
    mean = sum(c * c for c in latent_C.tolist()) / len(latent_C)
    return latent_C / (mean + eps) ** 0.5 * np.asarray(norm_C, np.float64)


def by_heads(latent_BSC, up_HDC) -> np.ndarray:
    """Each head's matrix times each latent: [B, S, H, D]."""
    latent, up = np.asarray(latent_BSC, np.float64), np.asarray(up_HDC, np.float64)
    made = np.empty((*latent.shape[:2], *up.shape[:2]))
    for b, s, h in np.ndindex(*made.shape[:3]):
        made[b, s, h] = up[h] @ latent[b, s]
    return made


def latent_cache(x_BTX, past_BPC, down_CX, norm_C, up_k_HDC, up_v_HDC, eps: float):
    rows = []
    for x_TX, past_PC in zip(np.asarray(x_BTX), np.asarray(past_BPC, np.float64)):
        new = [normed_latent(x_X, down_CX, norm_C, eps) for x_X in x_TX]
        rows.append(np.stack([*past_PC, *new]))
    latent = np.stack(rows)
    return latent, by_heads(latent, up_k_HDC), by_heads(latent, up_v_HDC)


def turned(x_R, position: int, theta: float = 10_000.0) -> np.ndarray:
    """Adjacent pairs as complex numbers, turned by position times their own speed."""
    x = np.asarray(x_R, np.float64)
    pair = x[0::2] + 1j * x[1::2]
    speed = theta ** (-np.arange(len(pair)) / len(pair))
    pair = pair * np.exp(1j * position * speed)
    return np.stack([pair.real, pair.imag], axis=-1).ravel()


def decoupled_scores(nope_BTHD, rope_BTHR, key_BSHD, rope_key_BSR) -> np.ndarray:
    nope, rope, key, shared = (
        np.asarray(x, np.float64) for x in (nope_BTHD, rope_BTHR, key_BSHD, rope_key_BSR)
    )
    (B, T, H, D), (S, R) = nope.shape, shared.shape[1:]
    score = np.empty((B, H, T, S))
    for b, h, t, s in np.ndindex(B, H, T, S):
        near = turned(rope[b, t, h], S - T + t) @ turned(shared[b, s], s)
        score[b, h, t, s] = (nope[b, t, h] @ key[b, s, h] + near) / (D + R) ** 0.5
    return score


def latent_attention(
    nope_BTHD, rope_BTHR, latent_BSC, rope_key_BSR, up_k_HDC, up_v_HVC, scale, visible_TS
) -> np.ndarray:
    """Expanded: keys and values of all heads are made, and read one query at a time."""
    nope, rope, shared = (np.asarray(x, np.float64) for x in (nope_BTHD, rope_BTHR, rope_key_BSR))
    key, value = by_heads(latent_BSC, up_k_HDC), by_heads(latent_BSC, up_v_HVC)
    B, T, H, _ = nope.shape
    output = np.empty((B, T, H, value.shape[-1]))
    for b, t, h in np.ndindex(B, T, H):
        seen = np.flatnonzero(np.asarray(visible_TS)[t])
        score = scale * (key[b, seen, h] @ nope[b, t, h] + shared[b, seen] @ rope[b, t, h])
        weight = np.exp(score - score.max())
        output[b, t, h] = weight @ value[b, seen, h] / weight.sum()
    return output


def decode(query_BHC, rope_query_BHR, latent_BSC, rope_BSR, scale: float) -> np.ndarray:
    """One new token a text; what comes out is each head's sum of latents."""
    query, rope_query, latent, rope = (
        np.asarray(x, np.float64) for x in (query_BHC, rope_query_BHR, latent_BSC, rope_BSR)
    )
    output = np.empty(query.shape)
    for b, h in np.ndindex(query.shape[:2]):
        score = scale * (latent[b] @ query[b, h] + rope[b] @ rope_query[b, h])
        weight = np.exp(score - score.max())
        output[b, h] = weight @ latent[b] / weight.sum()
    return output


def saving(old_layers, old_kv_heads, old_dim, layers, latent, rope, bits) -> tuple[float, float]:
    """In whole bits, as long as it can be."""
    old_bits = old_layers * 2 * old_kv_heads * old_dim * 16
    new_bits = layers * (latent + rope) * bits
    return new_bits / 8, 100 * (old_bits - new_bits) / old_bits
