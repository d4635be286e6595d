# %% [markdown]
# # 04 · FFN and experts
#
# *75 minutes.* A layer has two halves. Attention looks back at other tokens; that half
# fills the cache, and you know it from [chapter 01](01__attention.ipynb). The other
# half, the **feed-forward network** (FFN), looks at nobody. It holds nearly all the
# parameters of a large model, and not one byte of the cache. This chapter opens it. You
# build its units, the router that sends tokens to experts, and the count of parameters
# that stands beside the caches in every bill from chapter 05 on.
#
# **Objectives.** After this chapter you can
#
# - say why an FFN needs no memory, and show it,
# - read its units as pairs of "when does it fire" and "what does it write",
# - tell facts that live in the weights from facts that live in the text, by taking
#   parts of a model away,
# - route tokens to experts, and keep the experts equally busy without touching what
#   they say,
# - count all parameters and the active ones of a model with experts,
# - derive the number of this chapter:
#
# > **bytes per token that an FFN adds to the cache = 0**, with any number of experts

# %%
import inspect

import torch
from grading import predict
from tinymodels import ablate, checkpoints, device, ledger, tokenizer
from tinymodels.widgets import plot

model = checkpoints.load("tiny_v1-text-seed0").to(device.pick()).requires_grad_(False)


def tokens_of(text):
    return torch.tensor([tokenizer.encode(text)], device=model.device)


# %% [markdown]
# ## Two kinds of knowing
#
# The tiny model knows a small world. Where Ada lives is the same in every text it was
# trained on. What Ada *has* is different in each. Ask for both.

# %%
def answers(prompt, how_many=3):
    chances = model(tokens_of(prompt))[0, -1].softmax(-1)
    best = chances.topk(how_many)
    words = tokenizer.pieces(best.indices.tolist())
    pairs = zip(words, best.values.tolist())
    return "  ".join(f"{word.strip()} {chance:.1%}" for word, chance in pairs)


who = "Ada"
told = f"{who} has the kite. Tom has the cup.\nWhat does {who} have? {who} has the"
print(f"{who} lives in ...     ", answers(f"{who} lives in"))
print(f"{who} has the ...      ", answers(f"{who} has the"))
print("the same, once told: ", answers(told))

# %% [markdown]
# Nobody told the model in this text where Ada lives. It is sure all the same. What Ada
# has it cannot know, so it spreads its guess over things, until the text says it.
#
# Change `who` to `"Ben"`, `"Mira"` or `"Hugo"` and run the cell again. There are 24
# people.
#
# The second kind of knowing is what the cache is for: the answer lies in an earlier
# token, and attention fetches it. Where is the first kind? It must be in the weights.
# In which of them?
#
# ## A network for each token alone
#
# Here is the whole FFN of the model. `gate`, `up` and `down` are matrices.

# %%
from tinymodels.ffn import FeedForward

print(inspect.getsource(FeedForward.forward))

# %% [markdown]
# No position, no mask, no cache. It takes a token's vector and gives a vector back. So
# the order of the tokens cannot matter to it. Let us see: run layer 1's FFN on the
# tokens of a sentence, then on the same tokens in another order. Do the same with
# attention.

# %%
from tinymodels.step import Step

text = "Ada has the key. Ben has the lamp."
layer, tokens_BT = model.layers[1], tokens_of(text)
x_BTX, _ = model.layers[0](model.embed(tokens_BT), Step(tokens_BT))


def ffn_half(x_BTX, start=0):
    return layer.ffn(layer.ffn_norm(x_BTX))


def attention_half(x_BTX, start=0):
    step = Step(tokens_BT[:, start : start + x_BTX.shape[1]], start=start)
    return layer.attention(layer.attention_norm(x_BTX), step)[0]

# %%
order = torch.tensor([3, 1, 4, 10, 5, 9, 2, 6, 8, 7, 0])
for name, half in {"FFN": ffn_half, "attention": attention_half}.items():
    gap = (half(x_BTX[:, order]) - half(x_BTX)[:, order]).abs().max().item()
    alone = (half(x_BTX[:, 7:8], start=7) - half(x_BTX)[:, 7:8]).abs().max().item()
    print(f"{name:9}  in another order, results change by {gap:.3f};",
          f"token 7 without the others, by {alone:.3f}")

# %% [markdown]
# For the FFN the order makes no difference, and neither does company: it treats every
# token by itself, with the same weights. For attention both make all the difference.
#
# This is why an FFN adds nothing to the cache. When token 101 is written, the FFN needs
# token 101. What it did to tokens 1 to 100 is of no use to it.
#
# ## What happens inside
#
# Each of the 192 **units** of this FFN makes two numbers of the token, a *gate* and an
# *up*, and says `silu(gate) × up`. silu(g) is g × sigmoid(g): a soft switch. A
# negative gate closes it, a positive one lets the up through, the more the larger it
# is. Each unit then writes its own column of `down`, times what it said, into the
# stream. This form is called SwiGLU.
#
# Two numbers multiplied can become very large. In a model that computes in 8 or 4 bits
# one such spike spoils its neighbours (chapter 11 shows how). So V4 sets a limit of 10,
# before the product: the gate is cut from above, the up on both sides.

# %%
from tinymodels.ffn import swiglu

gates = torch.linspace(-20, 40, 241)
fig, axes = plot.figure(8.4, 2.6, columns=2)
for ax, up in zip(axes, (1.0, 30.0)):
    for limit, style in ((None, "--"), (10.0, "-")):
        said = swiglu(gates, torch.full_like(gates, up), limit)
        ax.plot(gates, said, style, label=f"limit {limit:g}" if limit else "no limit")
    ax.set(xlabel="gate", title=f"what a unit says, up = {up:g}")
axes[0].legend()
plot.show(fig, alt="silu(gate) times up: without a limit it grows with the gate; with "
          "limit 10 it stays at 10 for up 1, at 100 for up 30. Negative gates give 0.")

# %%
largest = swiglu(torch.tensor(1e6), torch.tensor(1e6), 10.0).item()
print(f"With the limit no unit ever says more than {largest:.2f}.")

# %% [markdown]
# A very negative gate is left alone: silu makes it 0 anyway. You build this in exercise
# 04.1.
#
# ## When a unit fires, and what it writes
#
# So a unit has two faces. Its rows in `gate` and `up` decide *for which tokens it
# fires*. Its column in `down` is *what it writes* when it does. Read like this, an FFN
# is a memory of pairs, a key and a value each, as Geva and others put it. Not a cache:
# these pairs were learned in training and are the same for every text.
#
# We ask the last layer for all 96 fixed facts ("Ada lives in", "Ada likes", ...), and
# note what its units say at the last token. (The hook in the code is a function that
# torch calls on the way; it notes what enters the FFN.) What a unit writes can be read
# with the output head, the matrix that makes logits of the stream: which words does its
# column push up?

# %%
from tinymodels.world import fixed_facts

facts = fixed_facts()
ffn = model.layers[3].ffn


def units(texts):
    """What the units of the last layer say at the last token of each text: [N, F]."""
    entered = []
    hook = ffn.register_forward_pre_hook(lambda _, x: entered.append(x[0][0, -1]))
    for text in texts:
        model(tokens_of(text))
    hook.remove()
    x_NX = torch.stack(entered)
    return swiglu(ffn.gate(x_NX), ffn.up(x_NX))

# %%
said_NF = units([fact.begin() for fact in facts]).cpu()
head_VX = (model.head.weight * model.norm.weight)[: tokenizer.VOCABULARY]
writes_VF = (head_VX @ ffn.down.weight).cpu()
writes_VF = writes_VF - writes_VF.mean(0)  # what pushes all words alike decides nothing

# %% [markdown]
# For one fact, how much does each unit push its answer? That is what it says times what
# it writes for that word. A unit may also say a negative number: then it pushes up what
# its column holds down. Here are the three units that push most. Change `about`.

# %%
def fires_for(unit, how_many=4):
    """The facts at which a unit speaks up most, with its sign there."""
    top = said_NF[:, unit].abs().topk(how_many).indices.tolist()
    return ", ".join(f"{facts[n].begin()} ({said_NF[n, unit]:+.1f})" for n in top)


about = "Ben is a"
n = [fact.begin() for fact in facts].index(about)
answer = tokenizer.word_id(facts[n].value)
push_F = said_NF[n] * writes_VF[answer]
print(f"{about} {facts[n].value}: all 192 units together push it by {push_F.sum():.1f}")
for unit in push_F.topk(3).indices.tolist():
    sign = said_NF[n, unit].sign()
    words = tokenizer.pieces((sign * writes_VF[:, unit]).topk(4).indices.tolist())
    print(f"\nunit {unit} pushes it by {push_F[unit]:.1f}",
          f"  fires for: {fires_for(unit)}",
          f"  writes: {', '.join(w.strip() for w in words)}", sep="\n")

# %% [markdown]
# Unit 21 fires when the text is about Ben, and it writes *Fernhill, dog, baker*: three
# of the four things that are always true of him. Nobody designed that. Training found
# it.
#
# Do not read too much into it. Its share is about half of the push; the rest comes from
# many others, and most units mix several people. Look at unit 21 on all facts: other
# people use it too.

# %%
unit = 21
people = list(dict.fromkeys(fact.subject for fact in facts))
kinds = list(dict.fromkeys(fact.relation for fact in facts))
place = {(fact.relation.name, fact.subject): n for n, fact in enumerate(facts)}
order = [[place[kind.name, who] for who in people] for kind in kinds]
grid = said_NF[:, unit][torch.tensor(order)]

fig, ax = plot.figure(8.4, 1.9)
far = grid.abs().max().item()
image = ax.imshow(grid, cmap="RdBu", vmin=-far, vmax=far, aspect="auto")
ax.set_xticks(range(len(people)), people, rotation=90)
ax.set_yticks(range(len(kinds)), [kind.says.format(subject="...") for kind in kinds])
ax.set_title(f"what unit {unit} says for each fixed fact")
fig.colorbar(image, ax=ax, fraction=0.02)
peak = people[grid.max(0).values.argmax()]
plot.show(fig, alt=f"A grid of four kinds of facts by 24 people for unit {unit}; its "
          f"largest value stands at {peak}, with weaker ones at other people.")

# %% [markdown]
# ## Taking parts away
#
# To see that a unit fires is not to know that it is needed. For that one has to take it
# away. We tell the model short stories and ask two kinds of questions after each:
#
# - **fixed**: *Where does Ada live?* (not told in the story),
# - **given**: *What does Ada have?* and, backwards, *Who has the lamp?* (told in it).
#
# Then we silence the FFNs of the upper half of the model, layers 2 and 3, at the one
# token that answers. Silence means: what they say is replaced by what they say *on
# average* over other stories' questions. (Zero would be a shock for what follows; the
# mean is what one says when one has nothing particular to say.)

# %%
asked, others = ablate.questions(count=40), ablate.questions(count=40, seed=1)
mean = ablate.means(model, others)
UPPER = (2, 3)


def told(shares):
    return "  ".join(f"{kind} {share:6.1%}" for kind, share in shares.items())


print(len(asked), "questions. Share of right answers (who: asked backwards):")
print("the whole model:                  ", told(ablate.right(model, asked)))
print("by guessing:                      ", told(asked.by_kind(asked.chance_B)))
ffns = [("ffn", layer) for layer in UPPER]
with ablate.mean_ablated(model, ffns, mean, asked):
    without_ffn = ablate.right(model, asked)

# %% [markdown]
# **Before you run the next cell:** which kind of question does it still answer without
# the two FFNs, `"fixed"` or `"given"`?

# %% tags=["predict"]
guess = ...
predict("04-a", guess)

# %%
print("without the FFNs of layers 2 and 3:", told(without_ffn))
predict("04-a", guess, answer=max(("fixed", "given"), key=without_ffn.get))

# %% [markdown]
# What was given in the text is still there; only asked backwards it has lost a little.
# What is fixed is lost for more than half of the questions. That is one half of what
# psychologists call a **double dissociation**: damage here breaks A and spares B. For
# the other half we need damage *elsewhere* that breaks B and spares A. Silence
# attention instead, in the same layers, at the same token.

# %%
attentions = [("attention", layer) for layer in UPPER]
with ablate.mean_ablated(model, attentions, mean, asked):
    print("without attention there:          ", told(ablate.right(model, asked)))

# %% [markdown]
# This is *not* the other half. The given facts are gone, but many fixed ones are too.
# Why? Think of the prompt: *Where does Ada live? Ada lives in*. The token that answers
# is "in". It must be told that this is about Ada, and only attention can tell it. A
# blunt cut breaks both kinds, and proves little.
#
# So cut more finely. Leave attention in place, but forbid the question's tokens to look
# back **at the story**, in the same two layers. They may still look at each other.

# %%
with ablate.without_looking_back(model, UPPER, asked):
    print("without looking back at the story:", told(ablate.right(model, asked)))

# %% [markdown]
# Now the fixed facts stand untouched and the given ones fall below guessing. Both
# halves together: one kind of knowing goes through the FFNs, the other through the
# cache.
#
# One model proves little either; training has its accidents. The same four rows for
# every text model of this course, trained from different seeds. Layers and cuts were
# chosen on the first one and not changed.

# %%
def four_rows(model):
    mean = ablate.means(model, others)
    cuts = {
        "whole": ablate.mean_ablated(model, [], mean, asked),
        "no upper FFNs": ablate.mean_ablated(model, ffns, mean, asked),
        "no upper attention": ablate.mean_ablated(model, attentions, mean, asked),
        "no look at the story": ablate.without_looking_back(model, UPPER, asked),
    }
    found = {}
    for name, cut in cuts.items():
        with cut:
            found[name] = ablate.right(model, asked)
    return found

# %%
names = [f"tiny_v1-text-seed{seed}" for seed in (0, 1, 2)]
by_seed = {name: four_rows(checkpoints.load(name).to(model.device)) for name in names}
for name, found in by_seed.items():
    print(name)
    for cut, right in found.items():
        print(f"  {cut:22}", told(right))

# %%
fig, ax = plot.figure(8.4, 3.0)
cuts, chance = list(by_seed[names[0]]), asked.by_kind(asked.chance_B)
for i, kind in enumerate(ablate.KINDS):
    places = [c + 0.27 * (i - 1) for c in range(len(cuts))]
    shares = [[by_seed[name][cut][kind] for name in names] for cut in cuts]
    ax.bar(places, [sum(s) / len(s) for s in shares], 0.24, label=kind)
    for x, seeds in zip(places, shares):
        ax.plot([x] * len(seeds), seeds, "k.", markersize=4)
        ax.plot([x - 0.12, x + 0.12], [chance[kind]] * 2, "k:", linewidth=1)
ax.set_xticks(range(len(cuts)), cuts)
ax.set(ylim=(0, 1.05), title="share of right answers (dots: seeds; dotted: guessing)")
ax.grid(axis="x", visible=False)
ax.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.12))
plot.show(fig, alt="Without upper FFNs fixed facts fall and given ones stay; without a "
          "look at the story given facts fall and fixed ones stay; without upper "
          "attention both fall.")

# %% [markdown]
# Seeds differ in how well they answer as a whole, so look at what each cut *changes*.
# All three tell the same story: without the upper FFNs half of the fixed facts are gone
# or more, and the given ones stay, but for a few that are asked backwards; without the
# look back it is the other way round.
#
# **What this shows, and what not.** It shows that the upper FFNs are needed for what
# training fixed, and not for what the text gives; and that a look back is needed for
# what the text gives, and not for what training fixed. It does not show that a fact
# "lies in" layer 3. Without both FFNs, at that token, the model is still well above
# guessing on fixed facts: what is left comes from lower layers, and from what was made
# of the name before. A part that is needed is not the same as the place where all of it
# is kept.
#
# ## Where the parameters are
#
# If FFNs hold what training taught, they should be large. Count the parameters of all
# eight published models by part.
#
# **Before you run the next cell:** what share of V4.1-Flash's parameters is in its
# FFNs, in percent?

# %% tags=["predict"]
guess = ...
predict("04-b", guess)

# %%
from tinymodels.published import PUBLISHED

print(f"{'billions':20}{'embed, head':>12}{'attention':>11}{'other':>8}{'FFN':>9}"
      f"{'total':>9}  {'printed':>9}  FFN share")
for name, published in PUBLISHED.items():
    parts = ledger.parameter_parts(name)
    ends = parts["embedding"] + parts["head"]
    looks = parts["attention"] + parts["indexer"]
    total = ledger.parameters(name)
    rest = total - ends - looks - parts["ffn"]
    billions = [n / 1e9 for n in (ends, looks, rest, parts["ffn"], total)]
    columns = "".join(f"{b:{w}.2f}" for b, w in zip(billions, (12, 11, 8, 9, 9)))
    printed = f"{published.parameters.value:g} [{published.parameters.status}]"
    print(f"{name:20}{columns}  {printed:>9}  {ledger.ffn_share(name):.1%}")

predict("04-b", guess, answer=round(100 * ledger.ffn_share("deepseek-v4.1-flash"), 1),
        unit="%")

# %% [markdown]
# The letter says how a printed total is known; **C** means its source states it. All
# shares are computed here from the shapes (**D**). V3.2's total is V3's figure: the
# indexer is not in it. V4.1's is without Engram, a look-up table of 196 billion numbers
# more (C), which this course leaves out.
#
# One hears that "60 to 70 % of the parameters are in the FFN". For the first model it
# was 76 %. For today's it is nearly all: 98.8 %. They did not get there with wider
# FFNs. They got there with *many*.
#
# ## Experts
#
# A token about Ben has no use for what the FFN knows of Mira. Yet it is multiplied by
# all of it. So cut the FFN into many small ones, the **experts**, and let each token
# use a few. A small matrix, the **router**, chooses:
#
# 1. score every expert for this token,
# 2. take the best k,
# 3. add up what they say, weighed by their scores,
# 4. and add a **shared** expert that every token meets, for what all have in common.
#
# Watch it on real tokens. The router here is as V4's, with 16 experts, 2 chosen. (What
# its matrix gives, z, becomes a positive score: √softplus(z), and softplus(z) is
# log(1 + eᶻ). The weights of the chosen are made to add up to `scale`.) Its
# weights are random, so its choices mean nothing yet; they are still choices. (V4's
# first three layers choose by a fixed table of token ids instead; V4.1 dropped that.)

# %%
from tinymodels import moe
from tinymodels.config import MoE

config = MoE(width=24, experts=16, top_k=2, shared=1, scoring="sqrtsoftplus",
             selection_bias=True, normalise=True, scale=1.5)
router = moe.Router(64, config).to(model.device).requires_grad_(False)
draw = torch.Generator().manual_seed(3)
router.gate.weight.copy_(torch.randn(16, 64, generator=draw) / 4)

# %%
def entering(tokens_BT, layer=2):
    """What enters the FFN of a layer, one row a token."""
    got = []
    hook = model.layers[layer].ffn.register_forward_pre_hook(
        lambda _, x: got.append(x[0].flatten(0, -2)))
    model(tokens_BT)
    hook.remove()
    return got[0]


x_nX = entering(tokens_of(text))
score_nE = moe.scores(x_nX @ router.gate.weight.T, config.scoring)
experts_nk = moe.choose(score_nE, config)
weights_nk = moe.weigh(score_nE, experts_nk, config)

# %%
fig, ax = plot.figure(7.2, 2.9)
image = ax.imshow(score_nE.cpu(), cmap="Blues", aspect="auto")
pieces = tokenizer.pieces(tokens_of(text)[0].tolist())
ax.set_yticks(range(len(pieces)), pieces)
ax.set(xlabel="expert", title="router scores; the two chosen ones with their weights")
for n, (chosen, weights) in enumerate(zip(experts_nk.tolist(), weights_nk.tolist())):
    for e, w in zip(chosen, weights):
        dark = score_nE[n, e] > score_nE.mean() + score_nE.std()
        ax.text(e, n, f"{w:.2f}", ha="center", va="center", fontsize=7,
                color="white" if dark else "black")
fig.colorbar(image, ax=ax, fraction=0.03)
plot.show(fig, alt="A grid of eleven tokens by sixteen experts, dark where the score "
          "is high; in each row two are chosen and their weights add up to 1.5.")

# %% [markdown]
# Each row is one token, and its two weights add up to 1.5, V4's scale. Every token goes
# its own way: the router, like the FFN, looks at one token alone.
#
# The rest of the layer is ten lines: each expert that was chosen runs on its tokens,
# and what it says is added up, with the router's weights. The matrices of all experts
# lie stacked, one behind the other.

# %%
def one_after_another(x_NX, experts_Nk, weights_Nk, gate_EFX, up_EFX, down_EXF):
    y_NX = torch.zeros_like(x_NX)
    for e in experts_Nk.unique().tolist():
        token, choice = (experts_Nk == e).nonzero(as_tuple=True)
        x_nX = x_NX[token]
        inner_nF = swiglu(x_nX @ gate_EFX[e].T, x_nX @ up_EFX[e].T)
        said_nX = weights_Nk[token, choice, None] * (inner_nF @ down_EXF[e].T)
        y_NX.index_add_(0, token, said_nX)
    return y_NX


stacked = [torch.randn(17, *shape, generator=draw).to(model.device) / 8
           for shape in ((24, 64), (24, 64), (64, 24))]  # gate, up, down
routed_nX = one_after_another(x_nX, experts_nk, weights_nk, *stacked)
always_n1, one_n1 = torch.full_like(experts_nk[:, :1], 16), torch.ones(len(x_nX), 1)
shared_nX = one_after_another(x_nX, always_n1, one_n1.to(model.device), *stacked)
y_nX = routed_nX + shared_nX

# %% [markdown]
# Expert 16 here is the shared one: every token goes there, with weight 1. Check one
# token by hand. "key" is token 4.

# %%
token = x_nX[4]
by_hand = 0
for expert, weight in [*zip(experts_nk[4].tolist(), weights_nk[4].tolist()), (16, 1.0)]:
    gate, up, down = (matrix[expert] for matrix in stacked)
    by_hand = by_hand + weight * (down @ swiglu(gate @ token, up @ token))
    print(f"expert {expert:2}, weight {weight:.2f}")
print("the same:", torch.allclose(by_hand, y_nX[4], atol=1e-5))

# %% [markdown]
# What does it buy? Compare what a model *has* with what one token *meets*. V4.1-Flash
# has 1 shared and 384 routed experts in each of 40 layers, and chooses 6.
#
# **Before you run the next cell:** how many of its 552 billion parameters does one
# written token meet, in billions?

# %% tags=["predict"]
guess = ...
predict("04-c", guess)

# %%
v41 = PUBLISHED["deepseek-v4.1-flash"]
e, width, layers = v41.config.layers[0].ffn, v41.config.width, len(v41.config)
expert = 3 * width * e.width
print(f"one expert: 3 x {width:,} x {e.width:,} = {expert:,} parameters")
has, meets = e.shared + e.experts, e.shared + e.top_k
print(f"a layer has {has} of them, a token meets {meets}: {meets / has:.1%}")
for phase in ("decode", "prefill"):
    figure = v41.active[phase]
    print(f"{phase:8} computed {ledger.active('deepseek-v4.1-flash', phase) / 1e9:5.2f}"
          f" billion, printed {figure.value:g} [{figure.status}]")
dense = ledger.active("deepseek-67b") / 1e9
print(f"V1, all in one: {dense:.1f} billion for every token")
predict("04-c", guess, unit="billion",
        answer=round(ledger.active("deepseek-v4.1-flash") / 1e9, 1))

# %% [markdown]
# Eight times the parameters of V1, and a quarter of the work for each token. (Why
# reading a prompt takes only half of that again is the story of chapter 09.)
#
# ## Keeping them busy
#
# There is a catch. Nothing makes the router fair. Some experts are liked by most
# tokens, some by hardly any. On a machine, the busiest expert is what all others wait
# for; and an expert that sees no tokens learns nothing.
#
# Older models added a penalty to the training loss, which pulls at the same weights
# that should learn language. V3 found a way without: give each expert a number, its
# **bias**, that is added to its score *when choosing*. After each step of training the
# bias of every expert with less than its share goes up by a small fixed amount, gamma;
# of every expert with more it goes down.
#
# Here are 41 batches of held-out text, 1,024 tokens each, sent through our random
# router. The widget stands at step 20: go back to 0 and watch it from the start. Then
# try other gammas.

# %%
from tinymodels import data
from tinymodels.widgets.router_load import RouterLoad, record

batches = [
    entering(data.batch("text", 0, n, data.Stage(4, 256), held_out=True)
             .tokens.to(model.device))
    for n in range(41)
]
balance = record(router, batches)
RouterLoad(balance, gamma=0.01, step=20)

# %% [markdown]
# The whole course of it, for each gamma:

# %%
fig, ax = plot.figure(6.8, 2.8)
for gamma, moments in balance.runs:
    ax.plot([m.busiest() for m in moments], label=f"{gamma:g}", linewidth=1.5)
ax.axhline(1, color="black", linewidth=1)
ax.set(xlabel="step", ylim=(0.9, None),
       title="load of the busiest expert, in fair shares, by gamma")
ax.legend(ncols=5)
late = {gamma: sum(m.busiest() for m in run[-10:]) / 10 for gamma, run in balance.runs}
ends = ", ".join(f"{load:.2f} with gamma {gamma:g}" for gamma, load in late.items())
first = balance.runs[0][1][0].busiest()
plot.show(fig, alt=f"The busiest expert begins with {first:.2f} fair shares. Over the "
          f"last ten steps it carries {ends}.")

# %% [markdown]
# Left alone, the busiest expert carries two to three times its share. With steps of
# 0.01 the load is evened out within some twenty batches. What remains is the difference
# between one batch of text and the next; no bias can know the next batch. Steps of 0.1
# overshoot: an expert that was too busy is suddenly shunned, and the load swings. Steps
# of 0.001 (V3's) need longer than we watch; V3 was trained for hundreds of thousands.
#
# ## The bias must not speak
#
# The bias takes part in choosing and in nothing else. The weights come from the scores
# alone. What if it took part in both? On paper: a token scores two experts 0.9 and 0.3.
# The first is popular, so its bias has gone down to -0.7; the second's is up at 0.2.
# Both are chosen.

# %%
score, bias = torch.tensor([0.9, 0.3]), torch.tensor([-0.7, 0.2])
for name, s in (("the scores", score), ("scores plus biases", score + bias)):
    weights = [round(w, 2) for w in (s / s.sum()).tolist()]
    print(f"weights from {name:19}", weights)

# %% [markdown]
# The expert that suits the token three times better now speaks *less* than the other,
# only because it is popular with other tokens. Balancing would change what the model
# says. And it would go on changing it: the bias moves with every batch, so the same
# token would hear something else after each step, though no expert has learned
# anything.
#
# Measured on our batches: take the tokens that go to the very experts they would choose
# without any bias. With a bias that only chooses, they hear exactly what they heard
# before: the bias is nowhere in their weights. With one that also weighs they do not.

# %%
moments = balance.moments(0.03)
for step in (0, 10, 20, 40):
    m = moments[step]
    print(f"step {step:2}: {m.same:6.1%} of the tokens keep their experts; if the bias"
          f" weighs too, their weights are off by {m.moved:.1%}")

# %% [markdown]
# Tick "the bias also weighs" in the widget above to see it step by step. You write the
# router in exercise 04.2 and the update in 04.3.
#
# ## Many small products
#
# Experts save arithmetic. They do not save time by themselves. A GPU is fast at one
# large matrix product, and slow at starting many small ones. The plain way, one expert
# after another, starts many. Take 200 tokens of the last batch.

# %%
matrices = [matrix[:16] for matrix in stacked]  # the routed experts
x_NX = batches[-1][:200]
routing = router(x_NX)
chosen = (routing.experts_BTk, routing.weights_BTk)

# %% [markdown]
# We count the matrix products that torch starts, with a counter inside torch.

# %%
from torch.utils._python_dispatch import TorchDispatchMode


class Products(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ in ("mm", "bmm", "addmm")
        return func(*args, **(kwargs or {}))


with Products() as products:
    plain_NX = one_after_another(x_NX, *chosen, *matrices)
loads = routing.load(16).tolist()
print("tokens of each expert:", loads)
used = sum(load > 0 for load in loads)
print(f"{products.count} products are started for {used} experts")

# %% [markdown]
# Three for each expert that was chosen. In V4.1 that is up to 3 × 384 in each of 40
# layers, 46,080 in all, for a batch in which every expert is wanted.
#
# The kernel of this chapter does it in three launches, whatever the number of experts:
# one for gate, up and silu, one for down, one to add up each token's answers. It sorts
# the tokens by expert and cuts them into blocks of equal size; each block knows whose
# matrices it needs. This is a **grouped** matrix product.

# %%
from kernels import backend, bounds, moe_experts

impl = "triton" if backend.current().runs_triton else "torch"
with bounds.counting() as counted:
    grouped_NX = moe_experts(x_NX, *chosen, *matrices, impl=impl)
print("same as one after another:", torch.allclose(grouped_NX, plain_NX, atol=1e-4))

formula = moe_experts.traffic(tokens=200, top_k=2, width=64, ffn=24, loads=loads,
                              block=32, parts=(1, 2), itemsize=4)
print(f"formula: {moe_experts.launches} launches, {formula['bytes_read']:,} bytes read")
if backend.current().name == "interpret":
    print(f"counted: {counted.launches} launches, {counted.bytes_read:,} bytes read")

# %% [markdown]
# The blocks have a price. Count the rows that are computed for nothing.

# %%
for block in (1, 8, 16, 32, 64):
    real, empty = sum(loads), moe_experts.padding(loads, block)
    print(f"blocks of {block:2}: {empty:3} empty rows beside {real} real ones,"
          f" {empty / (real + empty):3.0%} of the work for nothing")

# %% [markdown]
# An expert's last block is seldom full. Large blocks suit the chip's matrix units,
# small ones waste less. So the kernel (`kernels/moe_experts.py`) takes blocks about as
# large as the mean load: 32 rows for our 25.
#
# The other cost is reading. An expert's matrices must be fetched from memory even for a
# single token. Here is what one layer of V4.1 reads and computes, for more and more
# tokens at once, with evenly loaded experts and numbers of 2 bytes. A GPU wants some
# hundreds of FLOPs for each byte.

# %%
def layer_traffic(tokens, seed=5):
    draw = torch.Generator().manual_seed(seed)
    chosen = torch.rand(tokens, e.experts, generator=draw).argsort(-1)[:, : e.top_k]
    loads = torch.bincount(chosen.flatten(), minlength=e.experts).tolist()
    block = {1: 16, 16: 16, 256: 16, 4096: 64}.get(tokens, 128)
    return loads, moe_experts.traffic(tokens=tokens, top_k=e.top_k, width=width,
                                      ffn=e.width, loads=loads, block=block)

# %%
for tokens in (1, 16, 256, 4096, 32768):
    loads, moved = layer_traffic(tokens)
    used, read = sum(load > 0 for load in loads), moved["bytes_read"]
    print(f"{tokens:6,} tokens: {used:3} experts, {plot.bytes_short(read):>8} read,"
          f" {plot.bytes_short(read / tokens):>8} a token,"
          f" {moved['flops'] / (read + moved['bytes_written']):6.1f} FLOPs a byte")

# %% [markdown]
# (Each block of rows fetches its expert's matrices again; hence more bytes in all.)
#
# One token alone reads six experts and does almost nothing with them. Sixteen tokens
# read almost ninety: they hardly ever share. Only thousands of tokens at once give
# every expert enough rows. That is why such models are served in large batches, and a
# large batch means **many caches at the same time**. A small cache is what makes room
# for the batch that makes experts pay.
#
# And in time? 256 rows through one matrix, or through 64 matrices of the same size,
# four rows each: the same arithmetic. (The numbers depend on your machine.)

# %% tags=["nbval-ignore-output"]
import time

tall, one = torch.randn(256, 512), torch.randn(512, 512)
fours, many = tall.split(4), torch.randn(64, 512, 512)


def fastest(work, repeats=5):
    took = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return min(took) * 1e3


print(f"one product of 256 rows: {fastest(lambda: tall @ one):6.2f} ms")
small = fastest(lambda: [four @ matrix for four, matrix in zip(fours, many)])
print(f"64 products of 4 rows:   {small:6.2f} ms")

# %% [markdown]
# ## Not in the cache
#
# Now double the experts of a whole model. The tiny V3 of this course keeps a latent of
# 400 bytes a token (chapter 06 explains it) and has 8 experts a layer.
#
# **Before you run the next cell:** with 16 experts a layer instead of 8, how many bytes
# a token does its cache take?

# %% tags=["predict"]
guess = ...
predict("04-d", guess)

# %%
from dataclasses import replace

from tinymodels.cache import allocate
from tinymodels.presets import tiny_v3


def with_experts(config, factor):
    def wider(ffn):
        if isinstance(ffn, MoE):
            return replace(ffn, experts=factor * ffn.experts)
        return ffn

    layers = (replace(layer, ffn=wider(layer.ffn)) for layer in config.layers)
    return config.with_(layers=tuple(layers))

# %%
for factor in (1, 2, 4):
    config = with_experts(tiny_v3(), factor)
    held = allocate(config, tokens=100).bytes()["total"]
    print(f"{8 * factor:2} experts: {ledger.parameters(config):9,} parameters,"
          f" {ledger.active(config):7,} active,"
          f" {ledger.rate(config)} bytes a token by formula, {held / 100:g} measured")
predict("04-d", guess, answer=ledger.rate(with_experts(tiny_v3(), 2)), unit="bytes")

# %% [markdown]
# Nothing changes but the parameters (and the router's few active ones). A cache keeps
# what later tokens will look back at. Nobody looks back at an FFN.
#
# The real figures say the same. From V3 to V4.1 the FFNs lost a sixth of their
# parameters; the cache shrank to a 79th.

# %%
for name in ("deepseek-67b", "deepseek-v3", "deepseek-v4.1-flash"):
    billions = ledger.parameter_parts(name)["ffn"] / 1e9
    print(f"{name:20} FFN {billions:6.1f} billion parameters,"
          f" cache {ledger.rate(name):9,} bytes a token")
print(f"{ledger.rate('deepseek-v3') / ledger.rate('deepseek-v4.1-flash'):.1f} times")

# %% [markdown]
# ## Exercises
#
# [Exercises 04](../exercises/04__ffn_and_experts.ipynb): SwiGLU with clamps, the
# router, the balancing update, and the active parameters of V4.1. About 70 minutes; a
# SwiGLU of yours that passes runs in the models of later chapters.
#
# What did you misjudge in this chapter?

# %% tags=["nbval-ignore-output"]
predict("04")

# %% [markdown]
# ## The ledger

# %%
from tinymodels.widgets import ledger_widget

ledger_widget(through="04")

# %% [markdown]
# ## What it costs
#
# Zero bytes of cache is not free. Experts trade memory for weights against arithmetic,
# and they ask for company.
#
# | | one dense FFN | experts (V4.1) |
# |---|---|---|
# | parameters in FFNs | 51 billion (V1) | 545 billion |
# | met by one token | all of them | 10 billion |
# | matrices read for one token alone | all | 7 of 385 a layer |
# | needs to be efficient | a batch | a large batch, evenly spread |
# | bytes of cache | 0 | 0 |
#
# The weights of V4.1 must lie in memory somewhere, all 552 billion of them, wanted or
# not. What is left of the memory is for the caches. How many fit? That is the bill, in
# chapter 05.
#
# ## Sources
#
# - SwiGLU: Shazeer 2020, [arXiv 2002.05202](https://arxiv.org/abs/2002.05202).
# - FFNs as key-value memories: Geva et al. 2021, [arXiv
#   2012.14913](https://arxiv.org/abs/2012.14913). How a fact is put together by FFNs
#   and attention: Geva et al. 2023, [arXiv
#   2304.14767](https://arxiv.org/abs/2304.14767).
# - Experts with shared ones: DeepSeekMoE, [arXiv
#   2401.06066](https://arxiv.org/abs/2401.06066). Balancing by a bias: Wang et al.
#   2024, [arXiv 2408.15664](https://arxiv.org/abs/2408.15664); used in V3, [arXiv
#   2412.19437](https://arxiv.org/abs/2412.19437), section 2.1.2.
# - Shapes, totals and active parameters: the models' reports and released
#   configurations, as `tinymodels/published.py` cites them one by one. Totals and
#   active figures: status C; shares: status D.
#
# Next: [05 · The bill](05__the_bill.ipynb): cache and weights on one card.
