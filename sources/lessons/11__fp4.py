# %% [markdown]
# # 11 · FP4
#
# *75 minutes.* Few layers own far rows now, and each row serves many layers ([chapter
# 10](10__csa2.ipynb)). What is left is the row itself: 512 numbers. In bf16 they take
# 1,024 bytes. V4.1 keeps them in 288: **four bits a number, and one small scale for
# every sixteen**. With that the course arrives at its 890. (*Row* is said here for
# both, for a token's row and for a group's entry: in bytes they are the same thing.)
#
# **Objectives.** After this chapter you can
#
# - write any number in four bits, by hand, and say how it was rounded,
# - choose a scale for a block, and explain why it is stored before it is used,
# - take one nibble out of a row of 288 bytes and say what it stands for,
# - measure what a format costs a trained model, near and far,
# - train through a rounding that has no slope,
# - derive the number of this chapter:
#
# > **(3 layers × 1/2 + 1 layer) × (288 + 68 bytes) = 890 bytes per token**

# %%
import torch
from grading import predict
from kernels import backend, bounds, sparse_attention_fp4
from tinymodels import checkpoints, data, ledger, row_formats
from tinymodels.formats import E2M1, E4M3, decode, encode, round_to
from tinymodels.widgets import plot

# %% [markdown]
# ## Sixteen numbers
#
# Four bits have sixteen codes. The format is called **E2M1**: one bit for the sign, 2
# for an exponent, 1 for what comes behind the point (the mantissa). Put any number in,
# run the cell, and try others: 0.3, -5.5, 100, -0.01.

# %%
number = 2.7

code = encode(torch.tensor(number), E2M1).item()
stands_for = decode(torch.tensor(code, dtype=torch.uint8), E2M1).item()
print(f"{number} is stored as {code:04b} (code {code}): {stands_for:g}")

# %%
values = decode(torch.arange(16, dtype=torch.uint8), E2M1).tolist()
fig, ax = plot.figure(7.2, 1.9)
ax.axhline(0, color="black", linewidth=1)
ax.plot(values, [0] * 16, "o", markersize=8)
for c, value in enumerate(values):
    aside = {0: 0.12, 8: -0.12}.get(c, 0)  # 0 and -0 lie at the same place
    ax.text(value + aside, -0.3, f"{c:04b}", ha="center", va="top", rotation=90)
    if c != 8:
        ax.text(value, 0.3, f"{value:g}", ha="center")
ax.plot([number], [0], "v", color=plot.VERMILION, markersize=9)
ax.set(ylim=(-1.6, 1), yticks=[], xticks=[], title="the sixteen numbers of E2M1")
ax.grid(visible=False)
plot.show(fig, alt="Sixteen points on a line: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and the same "
          "with a minus. They lie close together near 0 and far apart at 6.")

# %% [markdown]
# How do the bits of 0101 make 3? The first is the sign, +. The next two, 10, are the
# exponent: 2, which stands for × 2^(2−1). The last, 1, is what comes behind the point:
# 1.1 in binary is 1.5. Together 1.5 × 2 = 3. Only where the exponent is 00 there is no 1
# before the point: 0001 is 0.1 in binary, 0.5, and 0000 is 0.
#
# The numbers stand close near 0 and far apart at the ends. The step is 0.5 up to 2, then
# 1, then 2: a step in proportion to the number. That suits numbers most of which are
# small.
#
# Between two of them a number goes to the nearest. And exactly in the middle? Then to
# the one whose code is **even**, whose last bit is 0. Every other tie goes up, every
# other one down, so that sums hardly drift.
#
# **Before you run the next cell:** take a pencil: 0.25, 0.75, 1.25, 2.5 and 5 all lie
# in the middle. What does 5 become?

# %% tags=["predict"]
guess = ...
predict("11-a", guess)

# %%
for tie in (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0):
    below = max(v for v in values if v <= tie)
    above = min(v for v in values if v >= tie)
    codes = [values.index(v) for v in (below, above)]
    to = round_to(torch.tensor(tie), E2M1).item()
    print(f"{tie:4g} lies between {below:g} ({codes[0]:04b}) and {above:g}"
          f" ({codes[1]:04b}): becomes {to:g}")
predict("11-a", guess, answer=4)

# %% [markdown]
# You write this rounding in exercise 11.1.
#
# ## One scale for each block
#
# Sixteen numbers between -6 and 6 cannot say 0.02, nor 200. So numbers that lie side by
# side share a **scale**: divide them by it, round, and multiply again when reading. The
# scale brings the largest of the block to 6, the end of the line.
#
# The scale must be kept too, in bytes of its own. It is itself rounded, to a format of
# eight bits: **E4M3**, a sign, 4 bits of exponent, 3 behind the point, up to 448. It is
# read in the same way, only its exponent counts from 7: 0 0111 001 is 1.001 in binary,
# 1.125, times 2^(7−7). By hand, for a block [7, 1, -3.5]:

# %%
block = torch.tensor([7.0, 1.0, -3.5])
wanted = block.abs().max() / 6
scale = round_to(wanted, E4M3)
codes = encode(block / scale, E2M1)
back = decode(codes, E2M1) * scale
print(f"wanted scale {wanted:.4f}, stored as {scale:g}")
print("divided:", [round(v, 4) for v in (block / scale).tolist()])
print("codes:", codes.tolist(), "- and back:", back.tolist())

# %% [markdown]
# 7 came back as 6.75: the stored scale is 1.125, not 1.1667, and 6 × 1.125 is 6.75.
#
# ### The scale that was chosen, and the copy that is kept
#
# It is easy to write the wrong thing here: divide by the scale as chosen, in full
# precision, and keep a rounded copy of it. Everything looks fine, until it is read. How
# much is *lost*, here and below: the length of (what came back − what was there),
# divided by the length of what was there.

# %%
draw = torch.Generator().manual_seed(2)
blocks = torch.randn(4000, 16, generator=draw)
chosen = blocks.abs().amax(1, keepdim=True) / 6
stored = round_to(chosen, E4M3)


def lost(codes_of, scale):
    return ((codes_of * scale - blocks).norm() / blocks.norm()).item()


right = lost(round_to(blocks / stored, E2M1), stored)
wrong = lost(round_to(blocks / chosen, E2M1), stored)
print(f"divided by the stored scale: {right:.2%} of the length is lost")
print(f"divided by the chosen one:   {wrong:.2%}")

# %% [markdown]
# Every number of a block is then off by the rounding of the scale, on top of its own,
# all in the same direction. Divide by what will be *read*. The order is: choose, round,
# then divide.
#
# ### Why sixteen? Why E4M3?
#
# A short block follows its numbers closely, but its scales take bytes. A power of two as
# a scale (**UE8M0**: eight bits of exponent alone), rounded up, never cuts a number off
# and costs the same byte, but it can be up to twice too large, and then half of the line
# lies idle. Both can be tried. Here are rows of 512 normed numbers, with a few large
# ones among them, as trained models have them.

# %%
from tinymodels.formats import FP4, MXFP4, round_trip

rows = torch.randn(600, 512, generator=draw)
rows[:, ::37] *= 4
rows = rows / rows.square().mean(1, keepdim=True).sqrt()
print("block   bytes   E4M3 scale   power of two")
for size in (8, 16, 32, 64, 512):
    off = [((round_trip(rows, scheme, size) - rows).norm() / rows.norm()).item()
           for scheme in (FP4, MXFP4)]
    print(f"{size:5} {256 + 512 // size:7} {off[0]:11.2%} {off[1]:14.2%}")

# %% [markdown]
# From 32 to 16 the row grows by 16 bytes, 6 %, and the error falls by 12 %. From 16 to
# 8 it grows by 11 %, for 13 %: the gain runs out. V4.1 takes E4M3 in blocks of 16, for
# 288 bytes. The standard format **MXFP4** is powers of two in blocks of 32, 272 bytes.
# (Its standard rounds the power of two down, and cuts numbers off. DeepSeek rounds it up,
# and so does this course wherever it says MXFP4.) All formats of the chapter:
#
# | format | a number | a scale | for | 512 numbers |
# |---|---|---|---|---|
# | bf16 | 16 bits | none | | 1,024 bytes |
# | FP8 | E4M3, 8 bits | UE8M0, 1 byte | every 32 | 512 + 16 = 528 |
# | FP4, V4.1's rows | E2M1, 4 bits | E4M3, 1 byte | every 16 | 256 + 32 = 288 |
# | MXFP4, its index keys | E2M1, 4 bits | UE8M0, 1 byte | every 32 | 256 + 16 = 272 |
#
# Earlier rows in FP8 were others: V3.2's has a scale of four bytes for every 128 of its
# 512 numbers and 64 more in 16 bits, 512 + 16 + 128 = 656; V4's one byte for every 64 of
# 448 numbers, 64 in 16 bits and a byte of padding, 448 + 7 + 128 + 1 = 584.
#
# ### Why no second scale?
#
# NVIDIA's format of the same kind, NVFP4, has a second scale for a whole tensor,
# because E4M3 ends at 448, and 6 × 448 = 2,688 might not be enough. Here it is enough.
# A latent is brought to one length by its norm before it is kept: the mean of its
# squares is 1.
#
# **Before you run the next cell:** of 512 numbers with a mean square of 1, how large
# can one be at most?

# %% tags=["predict"]
guess = ...
predict("11-b", guess)

# %%
most = 512**0.5  # all of the length in one number
print(f"at most {most:.2f}; the codes and scales reach {6 * 448:,}")
alone = torch.zeros(512)
alone[7] = 30.0
normed = alone / alone.square().mean().sqrt()
print(f"one number, all others 0: becomes {normed.max():.2f}")
predict("11-b", guess, answer=round(most, 2))

# %% [markdown]
# (The norm has weights, 1 at first. A trained weight of 1.2 makes it 27, still far from
# 2,688.) RoPE turns pairs and keeps their length. A pair can put its length into one
# number, and the bound holds all the same: it is the length of the whole row.
#
# ## Nibbles, and the row of 288 bytes
#
# A byte holds two codes, two **nibbles**: the number with the even place in the low
# four bits, the odd one in the high four.

# %%
from tinymodels.formats import pack_nibbles

codes = torch.tensor([7, 2, 13, 0], dtype=torch.uint8)
packed = pack_nibbles(codes)
print(codes.tolist(), "->", [f"{byte:08b}" for byte in packed.tolist()])

# %% [markdown]
# 512 numbers: 256 bytes of codes, then 32 scales. Here is a row made by the cache
# itself, at the size of the real V4.1. (`filled` makes random weights of the real shape
# and runs the course's compressor, RoPE and packing into bytes with them. The numbers
# mean nothing; shapes, bytes and rounding are the real ones.)

# %%
from tinymodels.published import get

published = get("deepseek-v4.1-flash")
real = row_formats.filled(published.config, tokens=64)
owner = real.layers[8]
row = owner.main.packed()[0, 5]
print(row.shape[0], "bytes:", owner.main.layout.terms(), "of layer", owner.plan.layer)
print("first bytes of codes:", row[:4].tolist(), "of scales:", row[256:260].tolist())

# %% [markdown]
# Now take a nibble out of it. Set *number* to 0, 1, 2, then to 511; watch the byte, the
# half of it, and the scale.

# %%
from tinymodels.widgets.byte_microscope import ByteMicroscope, record

unrounded = row_formats.filled(published.config, tokens=64, storage="float32")
numbers = unrounded.layers[8].main.read()["latent"][0, 5]
slide = record(numbers, layer=8, tokens=(10, 11), readers=range(8, 14))
print("the same bytes as in the cache:", list(slide.plain.row) == row.tolist())
ByteMicroscope(slide, number=100)

# %% [markdown]
# Now set *the row* to "with an outlier": number 102 becomes 20. It spoils its own
# sixteen (96 to 111): they share its large scale, and most of them become 0. Move to
# 112, and nothing has changed. That is what short blocks are for.
#
# ## Formats side by side
#
# How much does each format lose on rows of a *trained* model? The rows of the tiny V4.1
# have 32 numbers. Here are the far rows of eight hard texts of its memory task, with 48
# pairs to remember in each, from both layers that own rows.

# %%
model = checkpoints.load("tiny_v4_1-recall-seed0").requires_grad_(False)
texts = row_formats.hard_texts(8)
made = row_formats.latents(model, texts.tokens)
lost_by = {}
for name in row_formats.FORMATS:
    layout = row_formats.layout_of(name, 32)
    lost_by[name] = [row_formats.error(latent, name) for latent in made.values()]
    real_row = row_formats.layout_of(name, 512).nbytes
    print(f"{name:6} {layout.nbytes:3} bytes of 32 numbers, {real_row:5,} of 512: lost",
          ", ".join(f"{e:.2%} (layer {i})" for e, i in zip(lost_by[name], made)))

# %%
fig, ax = plot.figure(6.4, 2.6)
for name, colour in zip(lost_by, plot.PALETTE):
    size = row_formats.layout_of(name, 512).nbytes
    mean = sum(lost_by[name]) / 2
    ax.plot([size], [mean], "o", color=colour, markersize=9)
    beside = {"MXFP4": (-46, -3), "FP4": (8, -3)}.get(name, (8, 4))
    ax.annotate(name, (size, mean), beside, textcoords="offset points")
ax.set(xlabel="bytes of a row of 512", yscale="log", xlim=(100, 1150),
       title="share of the rows' length that is lost", ylim=(1e-3, 0.3))
plot.show(fig, alt="Four formats: bf16 loses least and takes 1,024 bytes, FP8 is in "
          "between, FP4 and MXFP4 lose a tenth and take less than 300 bytes.")

# %% [markdown]
# What does a byte saved cost? From bf16 to FP8 the row shrinks to half and the error
# grows sixteenfold, from FP8 to FP4 nearly to half again and only 3.6-fold. MXFP4 saves
# 16 bytes more and loses a quarter more: against FP4 that is a bad bargain, and here is
# the sum.

# %%
size_of = {name: row_formats.layout_of(name, 512).nbytes for name in lost_by}
for one, other in (("bf16", "FP8"), ("FP8", "FP4"), ("FP4", "MXFP4")):
    more = sum(lost_by[other]) / sum(lost_by[one])
    saved = size_of[one] - size_of[other]
    print(f"{one:4} -> {other:5}: {saved:3} bytes saved of {size_of[one]:5,},"
          f" {more:4.1f} times the error")

# %% [markdown]
# A tenth of the length: is that much? Ask the model.
#
# ## Near and far
#
# V4.1 keeps its far rows in FP4 and its **window**, the newest 128 tokens, in FP8: 528
# bytes for each. Why not everything in FP4?
#
# The trained model reads the texts with all rows in bf16, and again with only one kind
# of rows in another format. We ask two things. How many of the words that it should
# remember does it still find? And how far do its next words move, at *every* place of
# the text? That is the KL divergence of the two distributions ([chapter
# 07](07__sparse_attention.ipynb) met it), in nats, the unit of the loss: 0 if nothing
# moved. It also sees what no answer depends on: at most places this task asks for
# nothing, and there the model's guesses move easily.
#
# **Before you run the next cell:** FP4 in the window and FP4 in the far rows: which
# moves the words more, `"window"` or `"far"`?

# %% tags=["predict"]
guess = ...
predict("11-c", guess)

# %%
choices = [("FP8", "bf16"), ("FP4", "bf16"), ("bf16", "FP8"), ("bf16", "FP4")]
second = checkpoints.load("tiny_v4_1-recall-seed1").requires_grad_(False)
both = [row_formats.effects(m, texts, choices) for m in (model, second)]
for seed, moved in enumerate(both):
    for (window, far), found in moved.items():
        print(f"seed {seed}  window {window:4}  far {far:4}"
              f"  moved by {found.kl:.2f} nats, {found.right:.1%} of the words found")
near, distant = both[0]["FP4", "bf16"].kl, both[0]["bf16", "FP4"].kl
predict("11-c", guess, answer="window" if near > distant else "far")

# %% [markdown]
# In both trained models FP4 in the window moves the words more than twice as far as FP4
# in the far rows, and about three times as far as FP8 in the window. The first model
# still finds all the words it was trained to find. The second loses some with FP4 in the
# window, and none with the other three.
#
# The same for a model of *text*. There every word is a guess, and the loss on held-out
# text can tell: the number printed is how much it rises.

# %%
writer = checkpoints.load("tiny_v4_1-text-seed0").requires_grad_(False)
for batch in (0, 1):
    pages = data.batch("text", 0, batch, data.Stage(16, 256), held_out=True)
    for (window, far), found in row_formats.effects(writer, pages, choices).items():
        print(f"batch {batch}  window {window:4}  far {far:4}"
              f"  moved by {found.kl:.3f} nats, loss {found.more:+.3f}")

# %% [markdown]
# Here FP4 moves the words more than six times as far in the window as in the far rows.
# It is also what costs most loss, in both batches, though how much differs. The other
# three change the loss by less than four thousandths, up or down.
#
# The window is read by every token in every layer, and each layer has its own. Of the
# far rows there are two sets, and each token reads 8 of them. FP8 in the window costs
# little in return: a window has a fixed length, so it is not in the rate at all. All
# windows of V4.1 together, beside what a million tokens leave:

# %%
config = published.config
window = row_formats.layout_of("FP8", 512).nbytes
ring = len(config) * config.layers[0].attention.window
print(f"{len(config)} layers x 128 tokens x {window} = {ring * window:,} bytes a text")
print(f"in FP4 it would be {ring * 288:,}")
million = 1_000_000 * ledger.rate(config)
print(f"far rows and index keys of a million tokens: {million:,.0f} bytes")

# %% [markdown]
# At a million tokens the windows are 0.3 % of all. There is nothing to be saved where
# it hurts.
#
# (These are two tiny models of one seed each, on one set of texts each. The factors are
# theirs, not V4.1's.)
#
# ## Training through a rounding
#
# A model can be trained with the rounding in it. But a staircase has no slope: between
# two steps nothing changes, so the gradient is 0 and nothing in front of it learns. The
# **straight-through estimator** rounds on the way forward, and on the way back pretends
# it did not: the gradient passes as it came. Only where a number was cut off, beyond
# the end of the line, it stops.

# %%
from tinymodels.formats import fake_quantise

x = torch.tensor([[7.0, 1.3, -3.5, 0.2]], requires_grad=True)
fake_quantise(x, FP4, 16).sum().backward()
print("comes back as", round_trip(x.detach(), FP4, 16).tolist()[0])
print("gradient:    ", x.grad.tolist()[0])

# %% [markdown]
# 7 was cut to 6.75, so its gradient is 0. Now a small network: 48 numbers (made of 16
# hidden ones) to a row of 16, the row through FP4, and back to 48. It is trained three
# times: without rounding, with a rounding that lets no gradient through, and straight
# through. *Missing* is the mean square of the error, over that of the numbers.

# %%
WAYS = {
    "no rounding": lambda row: row,
    "rounding, no gradient": lambda row: round_trip(row.detach(), FP4, 16),
    "straight through": lambda row: fake_quantise(row, FP4, 16),
}

# %%
def trained(way, seed, steps=150):
    draw = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    down, into, out = (torch.nn.Linear(*s) for s in ((48, 16), (16, 64), (64, 48)))
    mix_ZX = 0.4 * torch.randn(16, 48, generator=draw)
    optimiser = torch.optim.Adam([*down.parameters(), *into.parameters(),
                                  *out.parameters()], lr=1e-2)
    for step in range(steps + 1):
        x_BX = torch.tanh(torch.randn(128, 16, generator=draw) @ mix_ZX)
        row = WAYS[way](down(x_BX)) if step < steps else round_trip(down(x_BX), FP4, 16)
        loss = (out(torch.nn.functional.silu(into(row))) - x_BX).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return (loss / x_BX.square().mean()).item()

# %%
for way in WAYS:
    missing = ", ".join(f"{trained(way, seed):.0%}" for seed in (0, 1))
    print(f"trained with {way:22} read from FP4, two seeds: {missing} are missing")

# %% [markdown]
# With the gradient blocked, everything in front of the rounding stays as random as it
# was. Straight through it learns. But look at the first line: trained without any
# rounding and rounded afterwards, this network does as well. When a row loses a tenth
# of its length, there is little to adapt to. The tiny models of this course were
# trained without it too, and rounded when they were done.
#
# ## A quarter of the bits
#
# "FP4 is a quarter of the bits" is true against bf16, and only of the codes. With
# scales, and against what was there before (V4's row, FP8 and a bf16 rope key):

# %%
from tinymodels.layouts import shared_kv_fp8

bf16, fp4 = (row_formats.layout_of(name, 512).nbytes for name in ("bf16", "FP4"))
before = shared_kv_fp8(448, 64)
print(f"codes alone against bf16: {bf16 / 256:.2f} times smaller")
print(f"the row against bf16:     {bf16:,} / {fp4} = {bf16 / fp4:.2f}")
print(f"the row against V4's:     {before.nbytes} / {fp4} = {before.nbytes / fp4:.2f}"
      f"   ({before.terms()} = {before.nbytes})")

# %% [markdown]
# And a trap. The released reference code rounds each row to FP4 *and back*, and keeps
# the result as bf16. That computes with the right numbers. Who calls it "288 bytes" has
# not looked:

# %%
pretended = round_trip(numbers, FP4, 16).to(torch.bfloat16)
print(f"rounded, and kept as bf16: {pretended.nbytes:,} bytes")
print(f"the packed row:            {row.nbytes} bytes")
same = row_formats.comes_back(numbers, "FP4").to(torch.bfloat16)
print("the same numbers:         ", torch.equal(pretended, same))

# %% [markdown]
# ## 890
#
# A far row is 288 bytes, an index key is 128 numbers in MXFP4: 64 + 4 = 68. Of 40
# layers four own rows: three with one row for two tokens, one with a row for each.
#
# **Before you run the next cell:** how many of the 890 bytes are index keys?

# %% tags=["predict"]
guess = ...
predict("11-d", guess)

# %%
from tinymodels.layouts import entry_fp4, index_fp4

main, index = entry_fp4(512), index_fp4(128)
owners = 3 / 2 + 1
print(f"a row: {main.terms()} = {main.nbytes}")
print(f"a key: {index.terms()} = {index.nbytes}")
print(f"rows {owners * main.nbytes:g} + keys {owners * index.nbytes:g} ="
      f" {owners * (main.nbytes + index.nbytes):g} bytes a token")
predict("11-d", guess, answer=round(owners * index.nbytes), unit="bytes")

# %% [markdown]
# That is the number from the layout. Here it is measured: the bytes of the storage that
# was filled above, row by row, through the same packing.

# %%
by_layer = real.per_layer()
for held in by_layer:
    if held["main"]:
        print(f"layer {held['layer']:2}: {held['main']:6,} bytes of rows,"
              f" {held['index']:5,} of keys, for {real.length} tokens")
total = real.bytes()["global"]
print(f"measured: {total:,} / {real.length} = {total / real.length:g} bytes a token")
said = published.rate
print(f"formula: {ledger.rate(config):g}   published: {said.value:g} [{said.status}]")

# %% [markdown]
# Formula, measurement and paper agree to the byte. 64 tokens are an even number; after
# an odd one, half a group waits, and the count is a little below. (A token leaves 356
# bytes in layer 20 at once, and every second one 3 × 356 = 1,068 in the other three.)

# %%
for n in (1, 2, 3, 127):
    exact = 1068 * (n // 2) + 356 * n
    cache = row_formats.filled(config, n) if n <= 3 else None
    shown = f", measured {cache.bytes()['global']:,}" if cache else ""
    print(f"{n:3} tokens: 1,068 x {n // 2} + 356 x {n} = {exact:,} bytes{shown}")
print(f"V1 against it: {ledger.rate('deepseek-67b') / ledger.rate(config):.1f} times")
opened = 3 * 2 * 2 * 512 * 4  # layers, tokens, value and gate, numbers, bytes
print(f"beside the rate, once a text: open groups {opened:,} bytes,"
      f" measured {real.bytes()['open_state']:,}; windows {ring * window:,}")

# %% [markdown]
# ## The kernel: bytes in, numbers in registers
#
# If a kernel first wrote the rows out as bf16 and read them again, the saving would be
# gone where it counts: in what moves through memory. So the attention reads the 288
# bytes themselves. Each program turns codes into numbers in its registers, by moving
# bits, without a table (`kernels/unpack_in_registers.py`). In slow motion:

# %%
for code in (1, 2, 7, 13):
    bits = (code & 8) << 12 | (code & 7) << 9  # sign to the front, the rest behind it
    as_half = torch.tensor([bits]).to(torch.int16).view(torch.float16)
    print(f"code {code:04b} -> fp16 {bits:016b} = {as_half.item():.3g},"
          f" times 2^14: {as_half.item() * 2**14:g}")

# %% [markdown]
# fp16 is a sign, 5 bits of exponent and 10 behind the point. The exponent of E2M1 is put
# at the end of fp16's own. E2M1 counts its exponent from 1 and fp16 from 15, so the same
# bits mean the same number, smaller by 2^14. Even 0.5 comes out right: fp16 has no 1
# before the point either where its exponent is 0.
#
# Now the whole kernel on one row. A softmax over a single row is 1, so what comes out
# must be the row. In the interpreter every load is counted.

# %%
query = torch.ones(1, 1, 1, 512)
one = dict(index_BTk=torch.zeros(1, 1, 1, dtype=torch.int32), splits=1)
if backend.current().name == "interpret":
    with bounds.counting() as counts:
        out = sparse_attention_fp4(query, row.view(1, 1, 288), **one, impl="triton")
    print("bytes read of the row:", counts["entry"].bytes_loaded)
else:
    out = sparse_attention_fp4(query, row.view(1, 1, 288), **one, impl="torch")
back = row_formats.comes_back(numbers, "FP4")
print("what comes out is the row:", torch.allclose(out.flatten(), back, atol=1e-6))

# %% [markdown]
# The way in has a kernel too. It finds the scales, rounds, and writes the 288 bytes;
# what lies in between never leaves the registers:

# %%
from kernels import quantise

impl = "triton" if backend.current().name == "interpret" else "torch"
written = quantise.pack(numbers[None], quantise.FP4, impl=impl)
print(f"{written.nbytes} bytes, those of the cache:", torch.equal(written[0], row))
print(f"the numbers that went in, in bf16: {numbers.numel() * 2:,} bytes")

# %% [markdown]
# And the traffic of one step, at V4.1's size:

# %%
t = sparse_attention_fp4.traffic(head_dim=512, batch=1, tokens=1, heads=64, chosen=512,
                                 rows=128, splits=1)
print(f"V4.1, one new token, one layer: {512} rows of 288 and {128} of 528 bytes")
rows_read = 512 * 288 + 128 * 528
print(f"are {rows_read:,} bytes; with the queries of 64 heads ({64 * 512 * 2:,}) and"
      f" the list ({512 * 4:,}) {t['bytes_read']:,} are read")
print(f"in bf16 the rows alone would be {640 * 1024:,}")

# %% [markdown]
# ## What it costs
#
# | | bf16 | FP8 | FP4 |
# |---|---|---|---|
# | a row of 512 numbers | 1,024 | 528 | 288 |
# | bytes a token of V4.1 | 3,200 | 1,650 | 890 |
# | lost of a trained row's length | 0.2 % | 2.7 % | 9.5 % |
#
# FP4 moves each far row by a tenth of its length, and costs a rounding at each write.
# On the memory task we saw nothing lost by it in the far rows. Here are the tiny models
# as they were shipped, each with the rows of its generation (the cell reads those that
# are there), measured without rounding. So the higher loss of the tiny V4.1 on stories is
# not FP4's doing: what rounding adds stands above.

# %% tags=["nbval-ignore-output"]
for name in checkpoints.available():
    preset, task, seed = name.split("-")
    if preset in ("tiny_v1", "tiny_v4", "tiny_v4_1"):
        found = checkpoints.describe(name)["measured"]
        bytes_a_token = ledger.rate(checkpoints.preset(preset))
        told = (f"loss {found['loss']:.3f}" if task == "text"
                else f"{found['recall']['pairs']['48']:.1%} of 48 pairs")
        print(f"{name:25} {bytes_a_token:7g} bytes a token: {told}")

# %% [markdown]
# From 389,120 to 890 bytes a token: fewer heads, one latent, groups, shared rows, four
# bits. The next chapter keeps these rows when the text is over.
#
# ## Exercises
#
# [Exercises 11](../exercises/11__fp4.ipynb): rounding, nibbles, both kinds of scale,
# straight through, and the 890. About 95 minutes.
#
# What did you misjudge in this chapter?

# %% tags=["nbval-ignore-output"]
predict("11")

# %% [markdown]
# ## The ledger

# %%
from tinymodels.widgets import ledger_widget

ledger_widget(through="11")

# %% [markdown]
# ## Sources
#
# - V4.1-Flash: [arXiv 2609.19969](https://arxiv.org/abs/2609.19969): the formats of its
#   rows, and 890 bytes a token (status C). V4's row of 584 bytes: its report.
# - MXFP4, E2M1, E4M3 and UE8M0: OCP Microscaling Formats (MX) specification 1.0.
# - The straight-through estimator: Bengio, Leonard and Courville 2013, [arXiv
#   1308.3432](https://arxiv.org/abs/1308.3432).
# - 22.63 is the root of 512; 2,688 is 6 × 448; both are arithmetic.
#
# Next: [12 · Serving](12__serving.ipynb): the memory at work.
