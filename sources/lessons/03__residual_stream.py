# %% [markdown]
# # 03 · The residual stream
#
# *60 minutes, and 30 more for the second path.* You have built attention and its cache
# ([chapter 01](01__attention.ipynb)), and looked between the layers ([chapter
# 02](02__layers.ipynb)). Here you look at what runs past all layers: one list of
# numbers for each token, to which every layer only *adds*. You take it apart into what
# each layer put there, find the one piece that carries an answer, and move that piece
# from one text into another. Later chapters change what a layer keeps; none of them
# keeps this.
#
# **Objectives.** After this chapter you can
#
# - write the stream as a sum, and check it to a millionth,
# - say which layer voted for a word, and what happens without it,
# - patch one piece from another text, and say what that proves,
# - write a pre-norm block, and say why the norm stands where it stands,
# - balance a matrix with Sinkhorn's method, and say what V4 needs it for,
# - derive what n copies of the stream cost in memory traffic, in three schedules; and
#   the number of this chapter:
#
# > **bytes per token that the cache keeps of the stream = 0**

# %%
import torch
from grading import predict
from tinymodels import checkpoints, swaps
from tinymodels.contributions import contributions
from tinymodels.widgets import plot

model = checkpoints.load("tiny_v1-text-seed0").requires_grad_(False)

# %% [markdown]
# ## A manuscript that is only added to
#
# Imagine a manuscript that goes round a table. The first person writes down a word.
# Each next person reads all that stands there and adds a remark at the end. Nobody
# crosses anything out.
#
# A transformer works like that. Each token has a list of numbers, here 64, called the
# **residual stream**. It begins as the token's embedding: a list of numbers that stands
# for the word. Each layer has two people at the table: attention, which looks back at
# other tokens, and a feed-forward network (FFN), which thinks about this token alone.
# We call both **sublayers**. Each reads the stream, works out a list of 64 numbers of
# its own, and *adds* it.
#
# **Before you run the next cell:** the model has 4 layers. Of how many lists is the
# stream at its end the sum?

# %% tags=["predict"]
guess = ...
predict("03-a", guess)

# %%
made = swaps.tokens([swaps.swap("Ada", "Ben", "key", "lamp")])
pieces = contributions(model, made.text_BT)  # what each one added, for every token

print(*pieces, sep=", ")
predict("03-a", guess, answer=len(pieces), unit="lists")

# %% [markdown]
# `contributions` runs the model and writes down what passes: the embedding, and what
# each sublayer found. Do these nine lists really add up to what leaves the last layer?

# %%
from tinymodels.step import Step

step = Step(made.text_BT)
stream, _ = model.run(range(4), model.open(step), step)  # the model's own way

gap = (sum(pieces.values()) - stream).abs().max() / stream.abs().max()
print("stream:", list(stream.shape), "= [batch, tokens, width]")
print("the sum is right to a millionth:", bool(gap < 1e-6))

# %% [markdown]
# Nothing was lost on the way. What layer 0 wrote is still there at the end, untouched,
# and any later layer could read it.
#
# ## Who wrote the answer?
#
# At the end the model gives every word a score (its **logit**), and the likeliest next
# word is the one with the highest. A logit is a dot product of the stream with the
# word's own list of numbers. And a dot product with a sum is the sum of the dot
# products: so each piece has its own share in the score. (One number that depends on
# the whole stream divides it before: the last norm. We take it as it is.)
#
# The text says "Ada has the key. Ben has the lamp. What does Ada have? Ada has the".
# The next word should be *key*, and *lamp* would be the easy mistake. So look at the
# difference of the two scores. A piece that makes it larger **votes** for *key*.
#
# Change names or things in the second line and run the cell again. Names, things and
# places of this model's world stand in `tinymodels/world.py`.

# %%
from tinymodels.contributions import votes

pair = swaps.swap("Ada", "Ben", "key", "lamp")  # asked, another, what, what else
made = swaps.tokens([pair])
pieces = contributions(model, made.text_BT)
counted = votes(model, pieces, made.answer_B, made.other_B)
cast = {name: vote_B.item() for name, vote_B in counted.items()}

fig, ax = plot.figure(6.4, 2.8)
colours = [plot.BLUE if vote > 0 else plot.ORANGE for vote in cast.values()]
ax.barh(list(cast), list(cast.values()), color=colours)
ax.invert_yaxis()
ax.axvline(0, color=plot.BLACK, linewidth=0.8)
ax.set(xlabel=f"votes for {pair.answer!r} (right) or {pair.other!r} (left), in logits")
words = ", ".join(f"{name} {vote:+.1f}" for name, vote in cast.items())
plot.show(fig, alt=f"Votes: {words}.")

# %%
logits_V = model(made.text_BT)[0, -1]
lead = (logits_V[made.answer_B[0]] - logits_V[made.other_B[0]]).item()
print(f"all votes together {sum(cast.values()):.3f}, the model's own lead {lead:.3f}")

# %% [markdown]
# The votes add up to the model's own lead: nothing was estimated. (This is called
# *direct logit attribution*.) One piece stands out: attention in layer 2. In chapter 01
# you saw its four heads look straight back at "key". Here you see what they brought
# home.
#
# ## Sizes and directions
#
# How large are the remarks, and do they repeat what stands there already? A list of
# numbers is an arrow. Two arrows that point the same way have the **cosine** 1,
# opposite ways -1, and 0 when they have nothing to do with each other.

# %%
so_far = torch.zeros(64)
size, growth, cosine = [], [], []
for piece in pieces.values():
    here = piece[0, -1]  # the last token
    cosine.append(torch.cosine_similarity(here, so_far, dim=0).item())
    so_far = so_far + here
    size.append(here.norm().item())
    growth.append(so_far.norm().item())

# %%
fig, (left, right) = plot.figure(8.2, 2.9, columns=2)
names = list(pieces)
left.barh(names, size, color=plot.SKY, label="what is added")
left.plot(growth, names, "o-", color=plot.VERMILION, label="the stream so far")
left.set_title("Size")
left.legend(fontsize=8)
right.barh(names[1:], cosine[1:], color=plot.GREEN)
right.set(xlim=(-1, 1), xticks=[-1, 0, 1], title="Cosine with the stream before")
for ax in (left, right):
    ax.invert_yaxis()
plot.show(fig, alt=f"Sizes from {min(size):.1f} to {max(size):.1f}; the stream grows to"
          f" {growth[-1]:.1f}. Cosines from {min(cosine[1:]):.2f} to"
          f" {max(cosine[1:]):.2f}.")

# %% [markdown]
# Most remarks are nearly at right angles to what stood there: they say something new,
# in a direction of their own. That is how one list of 64 numbers can carry many
# messages at once without one wiping out the other. The stream grows, because more is
# added than taken back.
#
# ## Take one out
#
# Votes tell who speaks for the answer. They do not tell who is *needed*. So take one
# sublayer out: it runs, and adds nothing (**ablation**). All later ones must make do.
# Sixty texts like the one above; how many does the model still get right?

# %%
from tinymodels.contributions import ablated, changed, patched, sublayers

many = swaps.tokens(swaps.swaps(60))


def says(word_B, changes):
    """The share of texts in which the model says this word, with these changes."""
    with changed(model, changes):
        said_B = model(many.text_BT)[:, -1].argmax(-1)
    return (said_B == word_B).float().mean().item()


print(f"{'as it is':12} right {says(many.answer_B, {}):5.0%}")
right = {name: says(many.answer_B, {name: ablated}) for name in sublayers(model)}
for name, share in right.items():
    print(f"without {name:12} right {share:5.0%}")

# %% [markdown]
# Look at `attention 1` and `ffn 0`: they have hardly a vote, and without them most
# answers are wrong. They prepare something that a later layer reads: in chapter 01 you
# saw two heads of layer 1 find out whom the sentence is about. But taking out can also
# break what was never about the answer, because the later sublayers meet a stream that
# they have never seen in training. So ablation says "something here was needed", and
# not what.
#
# ## Move one piece
#
# There is a sharper question. Take two texts that differ in one thing only:
#
# > Ada has the **key**. Ben has the **lamp**. What does Ada have? Ada has the ...
# >
# > Ada has the **lamp**. Ben has the **key**. What does Ada have? Ada has the ...
#
# Run the second and keep what one sublayer added at the last token. Then run the first,
# and let this sublayer add, at the last token, *that* instead (**patching**). Nothing
# strange enters the stream: the piece comes from a run of the same model. If the answer
# turns from key to lamp, the piece carried it.
#
# **Before you run the next cell:** the model has 8 sublayers. We patch one at a time.
# How many of them can turn more than half of the answers all alone?

# %% tags=["predict"]
guess = ...
predict("03-b", guess)

# %%
elsewhere = contributions(model, many.swapped_BT)
turned = {
    s: says(many.other_B, {s: patched(elsewhere[s])}) for s in sublayers(model)
}
for name, share in turned.items():
    print(f"{name:12} from the other text: {share:4.0%} of the answers turn")

predict("03-b", guess, answer=sum(share > 0.5 for share in turned.values()),
        unit="of the 8")

# %% [markdown]
# One list of 64 numbers, moved at one token, and the model says what the *other* text
# says, in all sixty texts. And none of the other seven does it, however much the answer
# depends on them. The fact "the key" passes through that one piece; what the earlier
# layers do is the same in both texts, or happens at other tokens.
#
# Is this so, or luck? The same model, trained from other random numbers on other texts:

# %%
for seed in (0, 1, 2):
    name = f"tiny_v1-text-seed{seed}"
    model = checkpoints.load(name).requires_grad_(False)
    elsewhere = contributions(model, many.swapped_BT)
    turned = {
        s: says(many.other_B, {s: patched(elsewhere[s])}) for s in sublayers(model)
    }
    first, second = sorted(turned, key=turned.get, reverse=True)[:2]
    print(f"{name}: right {says(many.answer_B, {}):.0%}; {first} turns"
          f" {turned[first]:.0%}, any other at most {turned[second]:.0%}")

model = checkpoints.load("tiny_v1-text-seed0").requires_grad_(False)

# %% [markdown]
# Here is all of it with handles. Choose a text, take a sublayer out or swap its answer
# in, and watch how the later bars follow: they read what stands before them.

# %%
from tinymodels.widgets import Additions
from tinymodels.widgets.additions import record

Additions(record(model, [swaps.swap("Ada", "Ben", "key", "lamp"), *swaps.swaps(2)]))

# %% [markdown]
# ## Never kept
#
# The stream is where everything happens. So what does the cache keep of it?
#
# Nothing. Look at what a later token needs of an earlier one: in each layer its key and
# its value, and these two were *made* from the stream. The stream itself is read by
# nobody but its own token, and that token is done.

# %%
tokens_BT = made.text_BT
cache = model.new_cache(batch=1, capacity=tokens_BT.shape[1], storage="float32")
model(tokens_BT[:, :-1], cache)  # all but the last token; their streams are gone now
last = model(tokens_BT[:, -1:], cache)[0, -1]

whole = model(tokens_BT)[0, -1]
held = cache.bytes()
print("kept in each layer:", *cache.layers[0].main.read())
print("bytes in keys and values:", held["global"], " beside them:",
      held["total"] - held["global"])
print("same logits:", torch.allclose(last, whole, atol=1e-4))

# %% [markdown]
# One could do it the other way: keep what attention reads of the stream, in each layer,
# and make keys and values anew from it when they are needed. The first DeepSeek, 67B,
# has a stream of 8,192 numbers and 95 layers.
#
# **Before you run the next cell:** keys and values of one token take 389,120 bytes
# there. How many would its streams take, in numbers of 2 bytes?

# %% tags=["predict"]
guess = ...
predict("03-c", guess)

# %%
from tinymodels import ledger
from tinymodels.published import get

v1 = get("deepseek-67b").config
streams = len(v1.layers) * v1.width * 2
rate = ledger.rate(v1)
print(f"{len(v1.layers)} layers x {v1.width:,} numbers x 2 bytes = {streams:,} bytes")
print(f"keys and values: {rate:,} bytes, {streams // rate} times less")
predict("03-c", guess, answer=streams, unit="bytes")

# %% [markdown]
# Four times as much (D: computed from the released shapes), and the matrix products to
# do again at every step. So keys and values are kept and the stream is not: **0 bytes
# per token**. Keep the idea in mind all the same. Something small, kept once, from
# which keys and values are made when they are needed: that is chapter 06.
#
# ## Where the norm stands
#
# The stream grows from layer to layer, and a sublayer should not notice. So each one
# reads it through a **norm** that brings every token's list to the same size:
#
# > RMSNorm(x) = weight × x / √(mean of x² + a tiny number)
#
# The question is where to put it. In the first transformers it stood *after* the
# addition (post-norm); today it stands *before* the sublayer (pre-norm):
#
# > post-norm: x ← norm(x + F(x))
# >
# > pre-norm: x ← x + F(norm(x))
#
# One looks much like the other. But with post-norm the stream itself passes through
# every norm, and is no sum any more. Training must send a message back from the last
# layer to the first, the **gradient**: how should each weight change? Here are three
# stacks of 64 layers, fresh and untrained: pre-norm, post-norm, and one in which
# nothing is added at all.

# %%
from tinymodels.transformer import Block


class PreNorm(Block):
    def forward(self, x, step, cache=None):
        found, step = self.attention(self.attention_norm(x), step, cache)
        x = x + found
        return x + self.ffn(self.ffn_norm(x)), step

# %% [markdown]
# `PreNorm` is what the layers of the model are. To be sure, put it in their place:

# %%
before = model(made.text_BT)
for layer in model.layers:
    layer.__class__ = PreNorm
print("the same logits:", torch.allclose(model(made.text_BT), before, atol=1e-4))

# %% [markdown]
# And the two others:

# %%
class PostNorm(Block):
    def forward(self, x, step, cache=None):
        found, step = self.attention(x, step, cache)
        x = self.attention_norm(x + found)
        return self.ffn_norm(x + self.ffn(x)), step


class NothingAdded(Block):
    def forward(self, x, step, cache=None):
        found, step = self.attention(self.attention_norm(x), step, cache)
        return self.ffn(self.ffn_norm(found)), step

# %% [markdown]
# Each stack gets weights with which a sublayer's answer is about as large as what it
# reads, one batch of text, and one step back. We look at the gradient of one matrix in
# each layer.

# %%
from tinymodels import data
from tinymodels.presets import tiny_v1
from tinymodels.transformer import Transformer
from torch.nn.functional import cross_entropy


def fresh(layers, seed):
    """An untrained stack, its answers about as large as what they answer to."""
    stack = Transformer(tiny_v1(layers=layers), seed=seed)
    with torch.no_grad():
        stack.embed.weight.mul_(50)
        for name, p in stack.layers.named_parameters():
            if p.dim() > 1:  # 0.02, some of it shrunk by depth -> 1 / sqrt(inputs)
                shrunk = name.endswith(("output.weight", "down.weight"))
                p.mul_(50 / p.shape[-1] ** 0.5 * ((2 * layers) ** 0.5 if shrunk else 1))
    return stack


# %%
def gradients(kind, layers, seed):
    """Size of the gradient of each layer's last matrix, before any training."""
    stack = fresh(layers, seed)
    for layer in stack.layers:
        layer.__class__ = kind
    batch = data.batch("text", seed, 0, data.Stage(2, 32))
    logits_NV = stack(batch.tokens).flatten(0, 1)
    cross_entropy(logits_NV, batch.targets.flatten()).backward()
    return [layer.ffn.down.weight.grad.norm().item() for layer in stack.layers]


KINDS = {"pre-norm": PreNorm, "post-norm": PostNorm, "nothing added": NothingAdded}
found = {n: [gradients(k, 64, seed) for seed in range(3)] for n, k in KINDS.items()}

# %%
fig, ax = plot.figure(6.4, 3.0)
uneven = {}
for name, runs in found.items():
    by_layer = torch.tensor(runs)
    middle = by_layer.log().mean(0).exp()
    ax.plot(range(64), middle, label=name)
    ax.fill_between(range(64), by_layer.amin(0), by_layer.amax(0), alpha=0.2)
    ratios = (by_layer.amax(1) / by_layer.amin(1)).sort().values
    uneven[name] = tuple(10 ** round(r) for r in ratios.log10().tolist())
ax.set(yscale="log", xlabel="layer", title="Size of the gradient in each of 64 layers")
ax.legend()
words = "; ".join(f"{n} {min(u):,} to {max(u):,}" for n, u in uneven.items())
plot.show(fig, alt="Gradients by layer, three seeds each. Largest over smallest, to the"
          f" nearest power of ten: {words}.")

# %% [markdown]
# The picture has a logarithmic axis. With nothing added, layers get gradients that
# differ a hundred million times and more: no single step size suits them all, and such
# a stack cannot be trained. The *addition* is what mends it. Where the norm stands
# makes the rest of the difference: with pre-norm the layers stay within some ten times
# of each other, with post-norm they are hundreds of times apart, and more with every
# layer. Along a pure sum the message runs back undivided.
#
# Two honest remarks. At 8 layers the two norms show no difference. And if the
# sublayers' answers start out small, as they do in the models of this course, post-norm
# behaves at 32 layers too. Depth is where pre-norm pays.
#
# ## Second path: several streams
#
# *The rest of this chapter leads to V4 and V4.1. You can come back to it before chapter
# 08.*
#
# One stream is a narrow road: what layer 3 wrote, layer 40 finds among all that was
# added in between. **Hyper-connections** give each token several copies of the stream,
# n of them (V4 has 4). Each sublayer does three things, with weights that are computed
# for each token anew:
#
# - it *reads* a mixture of the copies: weights **pre**,
# - it *adds* its answer to each copy, to one more, to another less: weights **post**,
# - it *mixes* the copies among each other: a small matrix **comb**.
#
# Written out, for the copies X_i of one token and a sublayer F:
#
# > what it reads = Σ_i pre_i X_i
# >
# > new X_j = post_j F(what it reads) + Σ_i comb[i, j] X_i
#
# Two copies of two numbers are enough to follow with a pencil.

# %%
copies = [[1.0, 0.0], [0.0, 1.0]]
pre, post = [0.5, 0.5], [1.0, 0.0]
comb = [[0.75, 0.25], [0.25, 0.75]]  # comb[i][j]: how much of old i goes into new j

reads = [sum(pre[i] * copies[i][x] for i in range(2)) for x in range(2)]
found_here = [2.0, 4.0]  # what the sublayer answers
new = [
    [post[j] * found_here[x] + sum(comb[i][j] * copies[i][x] for i in range(2))
     for x in range(2)]
    for j in range(2)
]
print("the sublayer reads", reads)
print("new copies        ", new)

# %% [markdown]
# `post` gave the whole answer to copy 0. Change it to `[0.0, 1.0]`, or `comb` to `[[1,
# 0], [0, 1]]`, and follow what happens: with no mixing, post all 1 and pre picking any
# copy, this is the old single stream.
#
# ## Why the mixing needs a leash
#
# A matrix that is applied again and again can do harm. V4-Flash mixes once for each
# sublayer, 2 × 43 = 86 times. Matrices that are only *nearly* harmless, the identity
# with a little noise, pile up. The leash is: every row and every column of comb must
# add up to 1, and no entry is negative (**doubly stochastic**). Columns that add up to
# 1 make each new copy an average of old ones, so nothing can grow. Rows that add up to
# 1 hand on each old copy exactly once, so the sum of all copies is kept.

# %%
from tinymodels.residual import sinkhorn

sublayers_of_v4 = 2 * len(get("deepseek-v4-flash").config.layers)
draw = torch.Generator().manual_seed(0)
copies_NX = torch.randn(4, 64, generator=draw)
mixed = {"free": copies_NX, "doubly stochastic": copies_NX}
sizes = {name: [1.0] for name in mixed}
for _ in range(sublayers_of_v4):
    noise_NN = torch.randn(4, 4, generator=draw)
    logits_BTNN = (3 * torch.eye(4) + noise_NN)[None, None]
    combs = {
        "free": torch.eye(4) + 0.15 * noise_NN,
        "doubly stochastic": sinkhorn(logits_BTNN, 20, 1e-6)[0, 0],
    }
    for name, comb_NN in combs.items():
        mixed[name] = comb_NN.T @ mixed[name]
        total = mixed[name].sum(0).norm() / copies_NX.sum(0).norm()
        sizes[name].append(total.item())

# %%
fig, ax = plot.figure(6.4, 2.6)
for name, values in sizes.items():
    ax.plot(values, label=name)
ax.set(yscale="log", xlabel="sublayers", title="Size of the sum of all copies")
ax.legend()
high, low = max(sizes["free"]), min(sizes["free"])
assert max(abs(s - 1) for s in sizes["doubly stochastic"]) < 0.001
plot.show(fig, alt=f"In {sublayers_of_v4} mixings by free matrices the sum of copies"
          f" goes from {low:.1f} to {high:.0f} times its size; doubly stochastic ones"
          " keep it to a thousandth.")

# %%
def apart(copies_NX):
    """How much the copies differ from their mean."""
    return (copies_NX - copies_NX.mean(0)).norm().item()


left = apart(mixed["doubly stochastic"]) / apart(copies_NX)
print(f"of the differences between the copies, less than 1 % is left: {left < 0.01}")

# %% [markdown]
# An average of averages of averages: mixing alone makes all copies alike. What keeps
# them apart in a model is that every sublayer's answer goes to each copy with another
# weight, `post`.
#
# ## Sinkhorn's method
#
# How does a model learn a matrix with such rows and columns? It does not. It makes any
# matrix, and then it is put right, in turns: divide each column by its sum; now the
# columns are right and the rows are not quite. Divide each row by its sum; now the rows
# are right and the columns not quite, but less wrong than before. And so on. V4 starts
# with a softmax of the rows, which makes all entries positive, does 20 turns, and ends
# with columns.

# %%
raw = torch.tensor([[2.0, 0.0], [1.0, 1.0]])
matrix = raw.softmax(-1)
for turn in range(1, 4):
    matrix = matrix / matrix.sum(0, keepdim=True)  # columns
    rows, columns = matrix.sum(1).tolist(), matrix.sum(0).tolist()
    print(f"turn {turn}: rows add up to {rows[0]:.4f} {rows[1]:.4f}, columns to"
          f" {columns[0]:.4f} {columns[1]:.4f}")
    matrix = matrix / matrix.sum(1, keepdim=True)  # rows, for the next turn

# %% [markdown]
# Now the real thing, `sinkhorn` as the model uses it, on a thousand random 4 × 4
# matrices: how far from 1 the sums of their rows and columns are after each turn.

# %%
logits_BTNN = 2 * torch.randn(1, 1000, 4, 4, generator=torch.Generator().manual_seed(5))
turns = list(range(1, 21))
gaps = {"worst row": [], "typical row": [], "worst column": []}
for turn in turns:
    comb_BTNN = sinkhorn(logits_BTNN.double(), turn, 1e-6)
    rows, columns = ((comb_BTNN.sum(axis) - 1).abs() for axis in (-1, -2))
    gaps["worst row"].append(rows.max().item())
    gaps["typical row"].append(rows.median().item())
    gaps["worst column"].append(columns.max().item())

fig, ax = plot.figure(6.4, 2.6)
for name, values in gaps.items():
    ax.plot(turns, values, "o-", label=name)
ax.set(yscale="log", xlabel="turns", xticks=turns[::2], title="How far a sum is from 1")
ax.legend()
words = ", ".join(f"{name} {values[-1]:.0e}" for name, values in gaps.items())
plot.show(fig, alt=f"How far from 1 after 20 turns: {words}.")

# %% [markdown]
# Columns are done last, so they are exact, but for a millionth that is added to each sum
# to keep a division by zero away. Rows come near, turn by turn: the typical one soon,
# the worst of four thousand slowly. It is the columns that make every new copy an
# average, so that nothing can grow: these are the ones to have exact.
#
# ## Where pre, post and comb come from
#
# From the copies themselves. All n copies of a token, one behind the other, are one
# list x of n × d numbers. It is brought to a standard length and multiplied by a
# learned matrix fn, which makes 2n + n² numbers of it: n for pre, n for post, n × n for
# comb. Each of the three groups has a learned scale α and learned base values b:
#
# > a = fn x / √(mean of x² + a tiny number)
# >
# > pre = sigmoid(α_pre a_pre + b_pre) + ε
# >
# > post = 2 sigmoid(α_post a_post + b_post)
# >
# > comb = Sinkhorn(α_comb a_comb + b_comb), an n × n matrix, row by row
#
# sigmoid(z) is 1 / (1 + e⁻ᶻ), between 0 and 1; ε is a millionth. So pre is never 0, and
# post lies between 0 and 2, around the 1 of a plain stream. (V4.1 makes them in the
# same way.) Here are the four lines beside the module that the models use.

# %%
from tinymodels.config import HyperConnections
from tinymodels.residual import Hyper

n, d = 4, 24
draw = torch.Generator().manual_seed(9)
module = Hyper(d, HyperConnections(n), norm_eps=1e-6).requires_grad_(False)
for p in (module.fn, module.base, module.scale):
    p.copy_(torch.randn(p.shape, generator=draw) / 2)
copies_NX = torch.randn(n, d, generator=draw)

x_F = copies_NX.flatten()
a_M = module.fn @ x_F / (x_F.square().mean() + 1e-6).sqrt()
scale_M = module.scale.repeat_interleave(torch.tensor([n, n, n * n]))
z_pre, z_post, z_comb = (scale_M * a_M + module.base).split([n, n, n * n])
by_hand = (z_pre.sigmoid() + 1e-6, 2 * z_post.sigmoid(),
           sinkhorn(z_comb.view(1, 1, n, n), 20, 1e-6)[0, 0])
made_by_it = module.mixes(copies_NX[None, None])
for name, mine, its in zip(made_by_it._fields, by_hand, made_by_it):
    print(f"{name} as the module makes it:", torch.allclose(mine, its[0, 0], atol=1e-5))

# %% [markdown]
# ## What it costs, and what delaying saves
#
# The mixing is hardly any arithmetic. But copies must be fetched from memory and put
# back, and there are n of them, each of d numbers for every token. A GPU works in
# **passes**: read, compute, write. Let us count what V4 moves between two sublayers,
# when each step is a pass of its own. Only n × n small weights stay out of the count.
#
# | pass | reads | writes |
# |---|---|---|
# | mix the copies, add the answer F | n copies, F | n copies |
# | work out the next pre, post, comb | n copies | - |
# | the next sublayer's input | n copies | input |
# | its norm | input | input |
#
# **Before you run the next cell:** V4 has n = 4 copies. How many times d numbers is
# that, reads and writes together?

# %% tags=["predict"]
guess = ...
predict("03-d", guess)

# %% [markdown]
# `Memory` counts every number that is read or written. The three schedules are ordinary
# code, and the tests hold their results against the model's own.

# %%
import inspect

from tinymodels import traffic

for schedule in (traffic.separate, traffic.fused, traffic.single):
    source = inspect.getsource(schedule).split('"""')
    print(source[0].rstrip(), source[-1].rstrip(), sep="")
    print()

# %%
from tinymodels.norm import RMSNorm
from tinymodels.residual import SinglePassHyper


def moved(n, d, schedule):
    """Numbers moved per token between two sublayers, counted while it runs."""
    draw = torch.Generator().manual_seed(n)
    copies = torch.randn(1, 5, n, d, generator=draw)
    found = torch.randn(1, 5, d, generator=draw)
    memory, norm = traffic.Memory(), RMSNorm(d, 1e-6)
    if schedule is traffic.single:
        config = HyperConnections(n, single_pass=True)
        schedule(memory, SinglePassHyper(d, config, 1e-6), norm, copies, found)
    else:
        before, after = (Hyper(d, HyperConnections(n), 1e-6) for _ in range(2))
        schedule(memory, (before, after), norm, before.read(copies)[1], copies, found)
    return memory.moved // 5  # tokens

# %%
print("copies n   separate   fused   single pass   (in units of d)")
for n in (1, 2, 4, 8):
    ways = (traffic.separate, traffic.fused, traffic.single)
    a, b, c = (moved(n, 24, way) // 24 for way in ways)
    assert (a, b, c) == (4 * n + 4, 3 * n + 2, 2 * n + 2)
    print(f"{n:8} {a:10} {b:7} {c:13}")

predict("03-d", guess, answer=moved(4, 24, traffic.separate) // 24, unit="times d")

# %% [markdown]
# - **(4n + 4) d**: every step a pass of its own.
# - **(3n + 2) d**: passes joined. The weights of the next read, `pre`, depend on *all*
#   numbers of the new copies, so the copies must be finished before the input can be
#   formed. They have to be read once more.
# - **(2n + 2) d**: V4.1 reads with the `pre` of the sublayer *before*. That one is
#   known in time, so the input is formed while the new copies pass by. Every copy is
#   read once and written once; no way is shorter.
#
# One small delay, and a whole trip to memory is gone. At real size, in numbers of 2
# bytes:

# %%
for name in ("deepseek-v4-flash", "deepseek-v4.1-flash"):
    config = get(name).config
    n, count = config.residual.copies, 2 * len(config.layers)
    print(f"{name}: {n} copies of {config.width:,} numbers, {count} sublayers")
    for way, each in (("separate", 4 * n + 4), ("fused", 3 * n + 2),
                      ("single pass", 2 * n + 2)):
        print(f"   {way:12} {plot.bytes_text(each * config.width * 2 * count)} a token")

# %% [markdown]
# The counts (4n + 4), (3n + 2) and (2n + 2) are stated in the V4.1-Flash report (status
# C); copies, widths and layers in the released configurations (C); the bytes are
# computed here (D). How they fall into passes, the table above, is our reading of the
# first count.
#
# ## The kernel
#
# The single pass is one kernel, `kernels/hyper_connection.py`. Here is its heart: a
# block of channels is read, the new copies are made, stored, and, while they are still
# in registers, mixed into the next input and into the numbers from which the next
# weights will be made.

# %%
from kernels import backend, bounds, hyper_connection

source = inspect.getsource(inspect.getmodule(hyper_connection))
start = source.index("        old_TNX = ")
print(source[start : source.index("        square_T +=")])

# %% [markdown]
# In the interpreter every load and store can be counted: is it really (2n + 2) d?

# %%
n, d, tokens = 4, 40, 16
draw = torch.Generator().manual_seed(7)
shapes = {"copies": (1, tokens, n, d), "found": (1, tokens, d), "flat": (1, tokens, 24),
          "base": (24,), "scale": (3,), "next_fn": (24, n * d)}
given = [torch.randn(*shape, generator=draw) for shape in shapes.values()]
new_BTNX, input_BTX, _ = hyper_connection(*given, impl="torch")

if backend.current().name == "interpret":
    with bounds.counting() as counted:
        by_kernel = hyper_connection(*given, impl="triton")
    print("same as plain torch:", torch.allclose(by_kernel[0], new_BTNX, atol=1e-4))
    numbers = sum(counted[name].loads + counted[name].stores
                  for name in ("copies", "found", "new", "following"))
    print(f"{numbers // tokens} numbers a token = {numbers // tokens // d} d")

# %% [markdown]
# ## Exercises
#
# [Exercises 03](../exercises/03__residual_stream.ipynb): a pre-norm block, patching,
# Sinkhorn's method, the update of the copies, and the count of the traffic. About 80
# minutes.
#
# What did you misjudge in this chapter?

# %% tags=["nbval-ignore-output"]
predict("03")

# %% [markdown]
# ## The ledger

# %%
from tinymodels.widgets import ledger_widget

ledger_widget(through="03")

# %% [markdown]
# ## What it costs
#
# | | cache, bytes a token | traffic per sublayer, n = 4 |
# |---|---|---|
# | one stream | 0 | 4 d |
# | V4: four copies, passes joined | 0 | 14 d |
# | V4.1: four copies, one pass | 0 | 10 d |
#
# The stream costs no memory that grows with the text: it is made anew for each token
# and thrown away. It does cost traffic at every step, and several copies cost several
# times as much, with weights of their own to make the mixes. What the delay of one
# sublayer does to the quality of a trained model is not measured in this chapter.
#
# What stands in the middle of each layer, and holds most of its weights, is the FFN:
# chapter 04.
#
# ## Sources
#
# - Residual connections: He et al. 2015, [arXiv
#   1512.03385](https://arxiv.org/abs/1512.03385). Where the norm stands: Xiong et al.
#   2020, [arXiv 2002.04745](https://arxiv.org/abs/2002.04745). RMSNorm: Zhang and
#   Sennrich 2019, [arXiv 1910.07467](https://arxiv.org/abs/1910.07467).
# - The stream as a sum, and votes: Elhage et al. 2021, *A Mathematical Framework for
#   Transformer Circuits*. Patching: Meng et al. 2022, [arXiv
#   2202.05262](https://arxiv.org/abs/2202.05262).
# - Hyper-connections: Zhu et al. 2024, [arXiv
#   2409.19606](https://arxiv.org/abs/2409.19606); on a leash (mHC): Xie et al. 2025,
#   [arXiv 2512.24880](https://arxiv.org/abs/2512.24880). Turns of rows and columns:
#   Sinkhorn and Knopp 1967.
# - The single pass and the three counts: DeepSeek-V4.1-Flash report, [arXiv
#   2609.19969](https://arxiv.org/abs/2609.19969).
#
# Next: [04 · FFN and experts](04__ffn_and_experts.ipynb): the half of a layer that
# keeps nothing.
