# %% [markdown]
# # 09 · CED
#
# *60 minutes.* V4 keeps little ([chapter 08](08__groups.ipynb)), but so far every layer
# reads every token of a prompt, the highest as well as the lowest. If the upper half
# could live on notes that the lower half has made, half of that work would be saved.
# V4.1-Flash is built so: twenty layers read, twenty layers write. This is CED: the
# lower half is called the **encoder**, the upper half the **decoder**.
#
# **Objectives.** After this chapter you can
#
# - say which layers run for which tokens, when a prompt is read and when text is
#   written,
# - build the decoder's far memory from the encoder's last state,
# - count what a prompt costs, in layers and in parameters,
# - run a bounded replay, and say when it is exact and how large its error is,
# - say what an exact replay would cost instead,
# - derive the number of this chapter:
#
# > **layer-tokens of a prompt = encoder layers × N + decoder layers × min(N, W)**
# >
# > V4.1: 20 N + 20 min(N, 128), without CED it would be 40 N

# %% [markdown]
# ## Who runs?
#
# A tiny V4.1 reads a prompt: eight layers, four of them the encoder, windows of 16
# tokens. Its cache counts how many tokens went through each layer. Set `prompt` to 100,
# then to 10, and run the cell again.

# %%
prompt = 40

import torch
from tinymodels import Transformer
from tinymodels.presets import tiny_v4_1

small = Transformer(tiny_v4_1()).requires_grad_(False)
memory = small.new_cache(1, prompt)
small.prefill(torch.arange(prompt)[None] % 256, memory)
for layer, tokens in sorted(memory.work.items(), reverse=True):
    print(f"layer {layer} {'#' * (tokens // 2):50} {tokens} tokens")

# %% [markdown]
# The lower four read everything. The upper four run 16 tokens at most, however long the
# prompt is. Afterwards the model writes with all eight layers, and they remember the
# whole prompt. How can a layer remember what it has never run?
#
# ## What a row needs
#
# Remember what a layer keeps of a token: a **row**, made of the stream as it enters
# that layer. So before layer 30 can make its row of a token, layers 0 to 29 must have
# run for that token. To fill the cache of all layers is to run all layers.
#
# We can see that. Change the feed-forward of one layer, and look whose rows change. On
# the left a V1 with eight layers, in the middle and on the right the tiny V4.1, whose
# layers have two memories: a **far** one of the whole text, and a **near** one, the
# window of the newest tokens.

# %%
from tinymodels import ced, checkpoints, data, ledger, replay
from tinymodels.presets import tiny_v1
from tinymodels.widgets import plot

v1_config = tiny_v1()
v1 = Transformer(v1_config.with_(layers=v1_config.layers * 2)).double()
v1.requires_grad_(False)
model = replay.random_model()  # float64, random weights that say something
text = torch.randint(256, (2, 20), generator=torch.Generator().manual_seed(1))
tables = {
    "V1, all rows": replay.needed(v1, text, "main"),
    "V4.1, far memory": replay.needed(model, text, "main"),
    "V4.1, windows": replay.needed(model, text, "window"),
}

# %%
fig, places = plot.figure(7.2, 2.9, columns=3)
for ax, (name, table) in zip(places, tables.items()):
    ax.imshow(table, origin="lower", cmap="Blues", vmin=0, vmax=1.3)
    ax.axhline(3.5, color=plot.VERMILION, linewidth=1)
    ax.set(xticks=range(8), yticks=range(8))
    ax.set(title=name, xlabel="layer that must have run")
    ax.grid(visible=False)
places[0].set_ylabel("layer that reads")
plot.show(fig, alt="V1's rows need all layers below: a triangle. The far memory of "
          "V4.1's layers 4 to 7 needs layers 0 to 3 only. Its windows: a triangle.")

# %% [markdown]
# A triangle for V1: each layer needs all that are below it. In V4.1 the far memory of
# the decoder, above the line, needs the encoder **and nothing else**. It is made of the
# stream as it leaves the encoder. (In the encoder layers 1 to 3 share what layer 1
# keeps, and layer 0 has only a window; sharing is the next chapter.)
#
# The windows are a triangle still. That is the price, and it comes back below.
#
# ## One projection for twenty layers
#
# What does the decoder's far memory consist of, then? Of each token one row, made in
# three steps: a matrix times the encoder's last state, an RMS norm, and RoPE by the
# token's position. Here it is by hand, for a text of 20 tokens. (The state is mixed and
# normed first, as at the entrance of every layer.)

# %%
from tinymodels.attention.rope import rotate_tail, turn_of
from tinymodels.step import Step

first = model.config.decoder_start
step = Step(text)
stream, step = model.run(range(first), model.open(step), step)  # the encoder, no more

layer = model.layers[first]
x_BTX, _ = layer.attention_residual.read(stream)  # V4.1 has several streams; mixed: one
x_BTX = layer.attention_norm(x_BTX)

compressor = layer.attention.compressor
latent_BTD = x_BTX @ compressor.value.weight.T  # 1. the matrix
length_BT1 = (latent_BTD.square().mean(-1, keepdim=True) + 1e-20).sqrt()
latent_BTD = latent_BTD / length_BT1 * compressor.norm.weight  # 2. the RMS norm
turn = turn_of(layer.attention.config.rope, torch.arange(20), torch.float64)
by_hand_BTD = rotate_tail(latent_BTD, turn)  # 3. RoPE, on the last numbers

# %% [markdown]
# Now run the *whole* model, all layers for all tokens, and look what the decoder keeps:

# %%
from tinymodels.cache import groups

memory = model.new_cache(2, 20, storage="float64")
model.prefill(text, memory, exact=True)
kept_BTD = groups.read(memory.layers[first].main)
same = torch.allclose(by_hand_BTD, kept_BTD, rtol=0, atol=1e-12)
print("same as in the cache:", same)
print(f"made by {first} layers and one matrix of {list(compressor.value.weight.shape)}")

# %% [markdown]
# So a token need not run through half of the model; one matrix takes its place. In
# V4.1-Flash that is a table of 512 × 5,120 numbers (and a small one for index keys)
# instead of twenty layers. Each decoder layer could have a matrix of its own; so you
# write it in exercise 09.1. V4.1 has a single one for all twenty, which is chapter 10.
#
# Is it a loss? The rows of layer 39 are no longer made by 39 layers of thought, but by
# 20. Each decoder layer still asks its *own* questions, with queries from its own
# stream. Only the notes are common.
#
# ## The tower
#
# Here is V4.1-Flash at work: forty layers, tokens from left to right. A prompt comes in
# four chunks; then three words are written. Move `moment` step by step (with the arrow
# keys, after a click on it). Then set `prompt` to 64, and `who runs` to *every layer*.

# %%
from tinymodels.widgets import Tower

Tower(moment=4)

# %% [markdown]
# An area in the picture is a number of **layer-tokens**: one token that goes through
# one layer. The encoder takes 20 N of them. The decoder takes 20 for each of the last
# 128 tokens, once, after the last chunk.
#
# **Before you run the next cell:** a prompt has 10,000 tokens. How many percent of 40 N
# layer-tokens are run?

# %% tags=["predict"]
from grading import predict

guess = ...
predict("09-a", guess)

# %%
def layer_tokens(N, encoder=20, decoder=20, W=128):
    return encoder * N + decoder * min(N, W)


for N in (64, 128, 256, 1_000, 10_000, 1_000_000):
    share = 100 * layer_tokens(N) / (40 * N)
    print(f"{N:>9,} tokens: {layer_tokens(N):>10,} of {40 * N:>10,}: {share:.2f} %")
predict("09-a", guess, answer=round(100 * layer_tokens(10_000) / 400_000, 2), unit="%")

# %% [markdown]
# And counted, by the cache of the tiny model (4 + 4 layers, windows of 16):

# %%
for N in (5, 16, 17, 100):
    memory = small.new_cache(1, N)
    small.prefill(torch.arange(N)[None] % 256, memory)
    print(f"{N:3} tokens: counted {sum(memory.work.values()):3},"
          f" formula {layer_tokens(N, 4, 4, 16):3}, all layers {8 * N}")

# %% [markdown]
# ## 8 billion in, 16 billion out
#
# The same in parameters. Of V4.1's 552 billion only a few meet a token: the experts
# that the router chose, and all that is not an expert. A token that is read meets only
# the encoder's; one that is written meets both halves'. V4-Flash is the smaller model,
# with 284 billion, 13 of which meet a token.
#
# **Before you run the next cell:** a popular article says that V4.1-Flash has "fewer
# active parameters than V4-Flash". When is that so: in `"prefill"`, in `"decode"`, in
# `"both"` or in `"neither"`?

# %% tags=["predict"]
guess = ...
predict("09-b", guess)

# %%
v41, v4 = "deepseek-v4.1-flash", "deepseek-v4-flash"
for phase in ("prefill", "decode"):
    new, old = ledger.active(v41, phase), ledger.active(v4, phase)
    print(f"{phase:8} V4.1-Flash {new:>14,} = {new / 1e9:4.1f} B"
          f"   V4-Flash {old:>14,} = {old / 1e9:4.1f} B")
bare = ledger.active(v41, "prefill", head=False)
print(f"a prompt's token that needs no output head: {bare:,} = {bare / 1e9:.1f} B")
(only,) = (phase for phase in ("prefill", "decode")
           if ledger.active(v41, phase) < ledger.active(v4, phase))
predict("09-b", guess, answer=only)

# %% [markdown]
# These are counted on the shapes of all weights. The report prints 8 billion for a
# token that is read and 16 for one that is written (status C).
#
# In prefill, 8 < 13. In decode it is 16 > 13. Whoever sends long documents and wants
# short answers profits; whoever has a novel written does not. An agent, which reads
# long files and tool answers to write a short line, profits most.
#
# And the bytes? Chapter 08 pooled 4 tokens into an entry, or 128. V4.1 pools two in 18
# of its encoder layers, and none in the decoder: there each token has a row. (The two
# layers left have a window only.) If each layer keeps what it makes for itself, an
# entry of 512 numbers and an index key of 128, or as released in 4 bits (chapter 11):

# %%
from tinymodels.ledger.ladder import unshared
from tinymodels.published import get

alone = unshared(get(v41).config)
for row, entry, key in (("bf16", 512 * 2, 128 * 2), ("fp4", 288, 68)):
    by_hand = (18 / 2 + 20) * (entry + key)
    rate = ledger.rate(alone, row=row)
    print(f"{row}: (18 / 2 + 20) x ({entry} + {key}) = {by_hand:,.0f} bytes a token,"
          f" ledger {rate:,} [D]")
print(f"in FP4 {rate / ledger.rate(v4):.2f} times V4-Flash's {ledger.rate(v4):,}")

# %% [markdown]
# Even in FP4 that is nearly three times V4-Flash's bytes. **CED by itself saves no
# byte.** It saves work. But look what it makes possible: twenty decoder layers whose
# rows are all made of the same stream. Must each keep its own? That is chapter 10.
#
# ## What a prompt moves
#
# Work is one thing, bytes that are fetched another. CED needs no kernel of its own; the
# two large ones of a layer are the experts' ([chapter 04](04__ffn_and_experts.ipynb))
# and the sparse attention over window and chosen rows. By their formulas, for V4.1's
# sizes and two bytes a number: an encoder layer with a prompt of 10,240 tokens, and a
# decoder layer, which runs 128 of them.

# %%
from kernels import moe_experts, sparse_attention

for N in (10_240, 128):
    even = [N * 6 // 384] * 384  # tokens for each expert, if all get as many
    moved = {
        "experts": moe_experts.traffic(tokens=N, top_k=6, width=5120, ffn=2304,
                                       loads=even),
        "attention": sparse_attention.traffic(tokens=N, heads=64, head_dim=512,
                                              chosen=512, rows=N, reach=128),
    }
    for name, t in moved.items():
        print(f"{N:6,} tokens, {name:9} {plot.bytes_short(t['bytes_read']):>7} read,"
              f" {t['flops'] / 1e9:5,.0f} GFLOP")

# %% [markdown]
# FLOPs fall to an eightieth, as the layer-tokens do. The experts' bytes only to a
# tenth: 128 tokens with six experts each are enough to call all 384, so every expert's
# weights are fetched once, for two tokens. A short prompt has the same trouble in every
# layer.
#
# ## The near memory
#
# The window is the other memory: of the newest 128 tokens each layer keeps a row,
# unpooled. These rows are made of the layer's *own* stream; you saw the triangle. For
# the encoder no problem: it has run everything. The decoder's windows are empty after a
# prompt, and the first word cannot be written without them.
#
# To fill them the decoder must run some tokens after all. How many? The window holds
# the last W, so V4.1 runs the last W. This is **bounded replay**. The first of the W
# tokens sees nothing in its windows before it, as if the text began there. A token at
# position i in a replay that starts at s sees the window rows from max(s, i − W + 1) to
# i.
#
# If the prompt has W tokens or fewer, that is all of it, and nothing is missing. If it
# is longer, it is an approximation. We measure it: the course's `replay.last_logits`
# runs as many of the last tokens as one wants.

# %%
import inspect

print(inspect.getsource(replay.last_logits))

# %% [markdown]
# First the tiny model with random weights, in double precision, with windows of 16. The
# error is how far off the logits are, as a share of what they are.

# %%
draw = torch.Generator().manual_seed(5)
long_text = torch.randint(256, (4, 120), generator=draw)


def off(model, tokens_BT, run):
    """The error after a prompt whose last `run` tokens went through the decoder."""
    exact_BV = model(tokens_BT)[:, -1]
    return replay.error(replay.last_logits(model, tokens_BT, run), exact_BV)


several = [replay.random_model(seed=seed) for seed in range(4)]
for N in (8, 16, 17, 60, 120):
    errors = [off(each, long_text[:, :N], min(N, 16)) for each in several]
    said = f"{min(errors):.1%} to {max(errors):.1%}, mean {sum(errors) / 4:.1%}"
    print(f"prompt of {N:3}, four models:", "none" if max(errors) < 1e-12 else said)

# %% [markdown]
# Exact to the window, an error beyond. On the mean it is smaller just beyond the window
# than later on, but from 60 tokens to 120 it does not grow. A model with random weights
# has no reason to rely on one layer more than on another; a trained one may. So the
# same with the model that was trained on recall, over prompts of many lengths, and with
# other windows.

# %%
trained, twin = (
    checkpoints.load(f"tiny_v4_1-recall-seed{seed}").requires_grad_(False).double()
    for seed in (0, 1)
)
told = data.batch("recall", 0, 0, data.Stage(4, 128), held_out=True).tokens
models = {"random weights": (model, long_text), "trained": (trained, told)}
lengths = (8, 16, 17, 20, 30, 50, 80, 120)
by_length = {
    name: [off(each, t[:, :N], min(N, 16)) for N in lengths]
    for name, (each, t) in models.items()
}

# %%
windows = (4, 8, 16, 48, 96, 100)
by_window = {"random weights": [], "trained": []}
for W in windows:
    same = Transformer(replay.with_window(trained.config, W)).double()
    same.load_state_dict(trained.state_dict())
    others = (replay.random_model(W), same.requires_grad_(False))
    for (name, errors), each in zip(by_window.items(), others):
        errors.append(off(each, models[name][1][:, :100], W))

# %%
fig, (left, right) = plot.figure(7.2, 3.0, columns=2)
for name, marker in zip(models, "os"):
    for ax, x, errors in ((left, lengths, by_length), (right, windows, by_window)):
        shown = [max(error, 1e-6) for error in errors[name]]  # 1e-6 stands for none
        ax.plot(x, shown, marker + "-", markersize=4, label=name)
left.axvline(16, color=plot.BLACK, linewidth=1)
left.set(yscale="log", xlabel="tokens of prompt, W = 16", title="error against N")
right.set(yscale="log", xlabel="window W, prompt of 100", title="error against W")
for ax in (left, right):
    ax.set_yticks([1e-6, 1e-4, 1e-2, 1], ["none", "0.01 %", "1 %", "100 %"])
left.legend()
plot.show(fig, alt="Left: no error up to a prompt of 16 tokens, then at once one that "
          "goes up and down with the prompt. Right: an error for each window, up and "
          "down, until the window holds the whole prompt: then none.")
for name in models:
    beyond = [e for n, e in zip(lengths, by_length[name]) if n > 16]
    print(f"{name}: {min(beyond):.2%} to {max(beyond):.2%} in prompts of 17 to 120;"
          f" {min(by_window[name][:-1]):.2%} to {max(by_window[name][:-1]):.2%}"
          " with windows of 4 to 96")
beyond = [off(twin, told[:, :N], 16) for N in lengths[2:]]
print(f"trained, seed 1: {min(beyond):.2%} to {max(beyond):.2%} in the same prompts")

# %% [markdown]
# On the left: no error up to W, then at once an error. It goes up and down with the
# prompt, and it stays bounded: from a point on, more tokens before do not make it
# larger. What is missing is what the *windows* would have brought;
# all else is in the far memory, which is exact. The trained model errs less than the
# random one.
#
# On the right there is a surprise. A window of 96 for a prompt of 100 still leaves an
# error; only one that holds the whole prompt leaves none. Of course more tokens are run
# then; but each of them also looks further back, and misses more. (A trained model with
# another window than it was trained with is no longer a good model; only its error
# counts here.)
#
# ## And recall?
#
# The recall model was trained to find a pair again that was told up to 250 tokens ago.
# Does it still find it, after a bounded replay? Six texts of 128 tokens with 20 pairs,
# and six of 256 with 48; in each, every fourth question. Two models of different seeds.
#
# **Before you run the next cell:** exact, all words are found. How many percent with
# the bounded replay?

# %% tags=["predict"]
guess = ...
predict("09-c", guess)

# %%
from tinymodels.dice import Dice


def found_again(model, length, pairs, run):
    """Percent of the answers after prompts whose last `run` tokens the decoder ran."""
    made = [data.recall(Dice("chapter 09", 0, i), length, pairs) for i in range(6)]
    texts = torch.tensor([one.tokens for one in made])
    right = []
    for at in made[0].answers[::4]:  # the same places in all texts of this size
        logits = replay.last_logits(model, texts[:, :at], run or at)
        right.append((logits.argmax(-1) == texts[:, at]).double().mean())
    return 100 * float(sum(right)) / len(right)


for seed in (0, 1):
    recalls = checkpoints.load(f"tiny_v4_1-recall-seed{seed}").requires_grad_(False)
    for size in ((128, 20), (256, 48)):
        found = {run: found_again(recalls, *size, run) for run in (None, 16, 1)}
        print(f"seed {seed}, {size[0]} tokens: exact {found[None]:.1f} %, bounded (16)"
              f" {found[16]:.1f} %, one token {found[1]:.1f} % found again")
predict("09-c", guess, answer=round(found[16], 1), unit="%")

# %% [markdown]
# Nothing is lost, even if a single token is run. That is no miracle and no proof: what
# is asked for was told long ago, so it lies in the *far* memory, and that one is exact.
# Recall is the wrong question to find the error of a replay. Choose what you measure by
# what could break.
#
# What could break is the near past, word by word: the sentence that one is in. So take
# the model that was trained on text, and ask for the next word: the loss after prompts
# of four lengths, 24 texts each.

# %%
from torch.nn.functional import cross_entropy

writer = checkpoints.load("tiny_v4_1-text-seed0").requires_grad_(False)
lines = data.batch("text", 0, 0, data.Stage(24, 160), held_out=True)
prompts = (40, 70, 100, 130)
print("prompt of  ", "  ".join(f"{N:4}" for N in prompts), "  mean")
for name, run in {"exact": None, "last 16": 16, "last 4": 4, "last token": 1}.items():
    losses = [
        cross_entropy(replay.last_logits(writer, lines.tokens[:, :N], run or N),
                      lines.targets[:, N - 1]).item()
        for N in prompts
    ]
    each = "  ".join(f"{loss:.2f}" for loss in losses)
    print(f"{name:10}  {each}   {sum(losses) / len(losses):.2f}")

# %% [markdown]
# Here it shows. Run only the last token, and the decoder has no near past: the loss is
# about three times as high. With a whole window it is nearly as good as exact. So the
# replay is needed, and one window of it is enough, for this model and these texts.
#
# ## The exact way, and its cost
#
# How many tokens would the decoder have to run to be exact? Its layers are L, here 4.
# Run more and more tokens and watch:

# %%
ladder = (1, 8, 16, 24, 32, 40, 50, 60, 61, 70)
falls = {}
for name, (each, t) in models.items():
    t = t[:, :120]
    exact = each(t)[:, -1]
    falls[name] = [
        replay.error(replay.last_logits(each, t, run), exact) for run in ladder
    ]
fig, ax = plot.figure(6.4, 2.8)
for (name, errors), marker in zip(falls.items(), "os"):
    ax.plot(ladder, [max(e, 1e-17) for e in errors], marker + "-", markersize=4,
            label=name)
ax.axvline(61, color=plot.BLACK, linewidth=1)
ax.set(yscale="log", xlabel="tokens that the decoder runs",
       title="error, W = 16, 4 layers, prompt of 120")
ax.legend()
plot.show(fig, alt="The error falls steadily; with random weights it drops from a "
          "millionth to mere rounding at just 61 tokens.")

# %% [markdown]
# It falls, and at 61 it drops to mere rounding. (In the trained model there is next to
# nothing left to drop.) Why 61? One layer looks back W − 1 tokens. But what it sees
# there has itself looked back W − 1, one layer below. Four layers: 4 × 15 back, and the
# token itself.
#
# > **exact rebuild = L (W − 1) + 1 tokens**

# %%
reach = 4 * (16 - 1) + 1
print("tiny V4.1:", reach)
for N in (70, 95, 120):
    less, just = (off(model, long_text[:, :N], run) > 1e-12 for run in (60, 61))
    print(f"prompt of {N:3}: an error with 60 tokens {less}, with 61 {just}")
real = 20 * (128 - 1) + 1
print(f"V4.1-Flash's decoder: {real:,} tokens in place of 128, {real / 128:.1f} times")
for N in (1_000, 10_000, 100_000):
    bounded = layer_tokens(N)
    exactly = 20 * N + 20 * min(N, real)
    print(f"prompt of {N:>7,}: exact costs {exactly / bounded - 1:.0%} more")

# %% [markdown]
# For a long prompt that would not be much. For a prompt of a thousand tokens the
# decoder would run all of it, and CED would save nothing.
#
# ## It heals
#
# **Before you run the next cell:** the prompt was read with a bounded replay. Now text
# is written, with all layers. What does the error do with each word: `"grow"`, `"stay"`
# or `"go away"`?

# %% tags=["predict"]
guess = ...
predict("09-d", guess)

# %%
def gone(errors):
    return next(n for n in range(len(errors)) if max(errors[n:]) < 1e-12)


more = {"random weights": torch.randint(256, (2, 130), generator=draw),
        "trained": data.batch("recall", 0, 1, data.Stage(2, 130), held_out=True).tokens}
fig, ax = plot.figure(6.4, 2.6)
for (name, text), style in zip(more.items(), ("-", "--")):
    errors = replay.fading(models[name][0], text, prompt=80)
    ax.plot([max(e, 1e-17) for e in errors], style, linewidth=1.6, label=name)
    print(f"prompt of 80, {name}: no error from word {gone(errors)} on")
ax.axvline(45, color=plot.BLACK, linewidth=1)
ax.set(yscale="log", xlabel="tokens written after a prompt of 80", title="error")
ax.legend()
plot.show(fig, alt="The error fades while text is written; it is gone after 45 tokens.")
for prompt in (20, 50):
    errors = replay.fading(model, more["random weights"][:, : prompt + 48], prompt)
    print(f"prompt of {prompt}, random weights: no error from word {gone(errors)} on")
print("(4 - 1) x (16 - 1) =", 3 * 15)
predict("09-d", guess, answer="go away")

# %% [markdown]
# It goes away, entirely, because a window forgets. Here is the same on paper, for four
# decoder layers and a window of four. A layer's output for a token is right if all that
# it sees in its window was run, and is right itself, one layer below.

# %%
L, W, words = 4, 4, 13
right = torch.zeros(L + 1, W + words, dtype=torch.bool)
right[0] = True  # what leaves the encoder
for layer in range(L):
    for t in range(W - 1, W + words):  # the tokens before see too little
        right[layer + 1, t] = right[layer, t - W + 1 : t + 1].all()
fig, ax = plot.figure(6.4, 2.0)
ax.imshow(~right[1:], origin="lower", cmap="Oranges", vmin=0, vmax=1.6, aspect="auto")
ax.axvline(W - 0.5, color=plot.BLACK, linewidth=1)
ax.set(yticks=range(L), ylabel="decoder layer", title="wrong outputs (dark)",
       xlabel="tokens of the replay | 0 is its last; behind the line what is written")
ax.set_xticks(range(W + words), range(-W + 1, words + 1))
plot.show(fig, alt="A staircase: decoder layer 0 is right from the prompt's last token"
          " on, each layer above it three words later, layer 3 from word 9 on.")
print("all is right from word", right[L].int().argmax().item() - (W - 1), "on")
print(f"V4.1: (20 - 1) x (128 - 1) = {(20 - 1) * (128 - 1):,} words")

# %% [markdown]
# The lowest layer is right as soon as its window holds only tokens that were run: at
# the prompt's last one. Each layer above has to wait until the wrong outputs below have
# left its window, W − 1 words. So there are L − 1 layers to wait for: (L − 1)(W − 1)
# words. For V4.1 that is 19 × 127 = 2,413.
#
# (Here the same text follows in both cases. A model that writes another word because of
# the error has of course written another word.)
#
# ## What it does for a stored prompt
#
# Many requests begin with the same text: the rules of a service, a long document. Its
# far rows are kept, and the next request need not read it again. But where are the
# windows? Either they are stored as well (V4 does that), or they are rebuilt.

# %%
held = ledger.exact(v41, 10_000)
print(f"far rows of 10,000 tokens: {held['global']:>9,} bytes")
print(f"windows: 40 x 128 x 528 =  {held['window']:>9,} bytes, wherever one may go on,")
print(f"as much as the far rows of {held['window'] // ledger.rate(v41):,} tokens [D]")

# %% [markdown]
# CED helps the near memory twice. The decoder's windows need never be stored: the
# decoder runs the last W tokens of a prompt in any case. And the encoder's are rebuilt
# by the same trick: the last W tokens of the stored text run through the encoder once
# more, which reads the far rows and writes none. (`ced.resume`; it takes 128 × 20
# layer-tokens, whatever the length of the prefix.)

# %%
prefix, new = 60, 20
stored = small.new_cache(1, prefix)
words = torch.arange(prefix + new)[None]
small.prefill(words[:, :prefix], stored)

again = small.new_cache(1, prefix + new)
again.adopt(stored, prefix)
ced.resume(small, words[:, :prefix], again)
print("rebuild:", dict(again.work))
small.prefill(words[:, prefix:], again)
print("with 20 new tokens:", dict(again.work), "=", sum(again.work.values()))
print("without a stored prefix:", layer_tokens(prefix + new, 4, 4, 16))

# %% [markdown]
# ## Your own replay
#
# Have you solved exercise 09.2? Then your table says which tokens the decoder of the
# tiny V4.1 runs; otherwise the course's does.

# %% tags=["nbval-ignore-output"]
from grading import my_parts

parts = my_parts()

# %%
from tinymodels.parts import Parts

mine = Transformer(small.config, Parts(who_runs=parts.who_runs)).requires_grad_(False)
prompt, logits = torch.arange(50)[None], []
for each in (small, mine):
    memory = each.new_cache(1, 50)
    logits.append(each.prefill(prompt, memory))
print("your decoder ran", memory.work[7], "of", memory.work[0], "tokens")
print("the same logits:", torch.equal(*logits))

# %% [markdown]
# ## The names
#
# In the translation models of 2017 an encoder read one sentence in both directions, and
# a decoder wrote another. CED's encoder reads in one direction like any GPT, and
# decoder and encoder stand on top of each other: a written token goes through **both**,
# the encoder first. What is the same is that the decoder looks into a memory that the
# encoder has made.
#
# Something near to CED was tried before: YOCO (2024) has a lower half that makes one
# cache for the whole upper half, and skips that half when reading.
#
# ## What it costs
#
# Recall of four generations, trained alike, two seeds each; the loss of two of them on
# text; and their bytes:

# %%
def measured(name):
    return checkpoints.describe(name)["measured"]


for preset in ("tiny_v1", "tiny_v3", "tiny_v4", "tiny_v4_1"):
    pairs = [measured(f"{preset}-recall-seed{seed}")["recall"]["pairs"]["48"]
             for seed in (0, 1)]
    rate = ledger.rate(checkpoints.preset(preset))
    print(f"{preset:10} {rate:6} bytes a token; found of 48 pairs:",
          ", ".join(f"{right:.1%}" for right in pairs))
for name in ("tiny_v1", "tiny_v4", "tiny_v4_1"):
    told = measured(f"{name}-text-seed0")
    print(f"{name:10} stories: loss {told['loss']:.3f}; facts of 25 sentences ago:",
          f"{told['given']['25']['all']:.0%}")

# %% [markdown]
# In the games looking up costs nothing that could be seen: a memory made by half of the
# layers is enough to find what was told. Stories are harder for the tiny V4.1: its loss is
# higher than V4's by 0.11, and a quarter of the facts is not found. How much of that is
# CED? This comparison cannot say. From V4 to V4.1 came CED, sharing, other groups (of 2
# and 1 for 4 and 16) and one more layer, all at once, and this is one seed of each.
# Chapter 10 takes sharing apart. (FP4 is not in these figures: they were measured before
# rounding.)
#
# | | every layer reads | CED (V4.1) |
# |---|---|---|
# | layer-tokens of a prompt | 40 N | 20 N + 20 min(N, 128) |
# | parameters a read token meets | as many as a written one | 8 of 16 billion |
# | the decoder's far rows | made by 20 to 39 layers | made by 20 |
# | after a prompt | all windows are there | the last 128 tokens run again |
# | error beyond the window | none | as measured above; gone after 2,413 words |
#
# ## Exercises
#
# [Exercises 09](../exercises/09__ced.ipynb): the decoder's far memory, who runs, the
# bounded replay, and what is exact. About 80 minutes.
#
# What did you misjudge in this chapter?

# %% tags=["nbval-ignore-output"]
predict("09")

# %% [markdown]
# ## The ledger

# %%
from tinymodels.widgets import ledger_widget

ledger_widget(through="09")

# %% [markdown]
# ## Sources
#
# - CED, bounded replay, 8B and 16B: DeepSeek-V4.1-Flash, arXiv 2609.19969, and its
#   released configuration and inference code (status C). 37,120 and 10,324 are
#   arithmetic on that configuration (status D).
# - V4-Flash: its report and configuration; 13B active (status C).
# - A cache made by the lower half for the upper: Sun et al. 2024, YOCO, [arXiv
#   2405.05254](https://arxiv.org/abs/2405.05254).
# - Encoder and decoder: Vaswani et al. 2017, [arXiv
#   1706.03762](https://arxiv.org/abs/1706.03762).
#
# Next: [10 · CSA2](10__csa2.ipynb): one memory for many layers.
