# %% [markdown]
# # 02 · Layers
#
# *60 minutes.* In [chapter 01](01__attention.ipynb) you built attention and the cache
# that it reads. A model has many layers of it, one above the other, and its cache is as
# many times as large: 95 times in the first DeepSeek. Here you look between the layers,
# find out what each of them is for, and why each keeps a memory of its own. In the next
# chapters you take the layers apart.
#
# **Objectives.** After this chapter you can
#
# - name the two halves of a layer, and run a model layer by layer in ten lines,
# - show that one token has a different key in each layer, and what breaks when two
#   layers share,
# - watch an answer come up, with the logit lens,
# - ask with a probe what a model knows at some point, and what not yet,
# - say what depth can do that width cannot, and count it,
# - derive the number of this chapter:
#
# > **bytes per token = the sum over the layers that keep rows; V1: 95 × 4,096**

# %%
import torch
from grading import predict
from tinymodels import checkpoints, device, lens, tokenizer
from tinymodels.step import Step
from tinymodels.widgets import plot

model = checkpoints.load("tiny_v1-text-seed0").to(device.pick()).requires_grad_(False)

# %% [markdown]
# ## An answer comes up
#
# The model of this course has four layers. Before the first stands the **embedding**: a
# table with a list of 64 numbers for each token of the vocabulary. Each layer gets such
# a list for every token and hands on a changed one; between two layers there is nothing
# else. So one can stop after any layer, and ask: if this were the end, which word would
# you say?
#
# Here are the three likeliest words after each layer. Run the cell. Then change the
# prompt and run it again, for instance to `Where does Ada live? Ada lives in`.

# %%
prompt = "Ada has the key. Ben has the lamp.\nWhat does Ada have? Ada has the"


def encode(text):
    return torch.tensor([tokenizer.encode(text)], device=model.device)


depths = ["embedding", *(f"layer {i}" for i in range(4))]
for name, logits_BTV in zip(depths, lens.guesses(model, encode(prompt))):
    share, token = logits_BTV[0, -1].softmax(-1).topk(3)
    said = (tokenizer.pieces([t])[0] for t in token.tolist())
    shown = (f"{w:>9} {s:4.0%}" for w, s in zip(said, share.tolist()))
    print(f"after {name:9}", *shown)

# %% [markdown]
# At first the model knows nothing but the last word, "the", and its guesses are blind.
# Then it knows that a thing must follow, and is wrong about which. And then, within one
# layer, the answer is there.
#
# This way of looking is called the **logit lens**. How it works comes further down.
# First: what does a layer do?
#
# ## One layer: look around, then work in place
#
# A layer has two halves.
#
# - **Attention looks around.** It is the only place where a token learns anything from
#   other tokens.
# - **The feed-forward network (FFN) works in place.** It takes the numbers of one token
#   and thinks about them, without looking at any other. Chapter 04 is about it.
#
# Each half *adds* what it found to the token's list of numbers. That list is the
# **residual stream**, and chapter 03 is about it. Here is the whole model, by hand.
# `source` says whose keys and values each layer reads; for now, its own. (`Step`
# carries what all layers must know of the text: its tokens and their positions. The
# norms bring a list to a standard length before it is read; chapter 03 says why.)

# %%
OWN = (0, 1, 2, 3)


def run_layers(model, tokens_BT, source=OWN):
    """Logits, and the rows that each layer made for the cache."""
    step, x_BTX, made = Step(tokens_BT), model.embed(tokens_BT), []
    for i, layer in enumerate(model.layers):
        query, rows = layer.attention.project(layer.attention_norm(x_BTX), step)
        made.append(rows)
        x_BTX = x_BTX + layer.attention.attend(query, made[source[i]], step)  # around
        x_BTX = x_BTX + layer.ffn(layer.ffn_norm(x_BTX))  # in place
    return model.head(model.norm(x_BTX)), made


logits_BTV, made = run_layers(model, encode(prompt))
print("the same as the model:", torch.equal(logits_BTV, model(encode(prompt))))

# %% [markdown]
# Is it true that only one half looks around? Change one token of six and see whose
# numbers change.

# %%
layer, step = model.layers[1], Step(torch.zeros(1, 6, dtype=torch.int64))
draw = torch.Generator().manual_seed(2)
x = torch.randn(1, 6, 64, generator=draw)
changed = x.clone()
changed[0, 2] = torch.randn(64, generator=draw)  # another token 2

halves = {
    "look around  ": lambda x: layer.attention(layer.attention_norm(x), step)[0],
    "work in place": lambda x: layer.ffn(layer.ffn_norm(x)),
}
for name, half in halves.items():
    moved = (half(x) - half(changed)).abs().amax(-1)[0] > 1e-6
    print(name, "changes at tokens", [t for t in range(6) if moved[t]])

# %% [markdown]
# Attention carried the change to every later token (the mask keeps it from the earlier
# ones). The FFN changed token 2 and nothing else. So a memory is needed for the first
# half only: **the cache holds keys and values of attention, and nothing of the FFN.**
#
# ## Why each layer keeps its own
#
# A key is made from the token's stream. The first layer sees the stream as it comes
# from the embedding: it knows which word it is, and no more. The second layer sees what
# the first one has added. So it can make a key that says more than the word.
#
# Take two texts, "Ada has the lamp." and "Ben has the lamp." The token "lamp" is the
# same token, at the same place.
#
# **Before you run the next cell:** in how many of the four layers is its key the same
# in both texts? Replace the dots.

# %% tags=["predict"]
guess = ...
predict("02-a", guess)

# %%
def keys_of_lamp(text):
    _, made = run_layers(model, encode(text))
    return torch.stack([rows["key"][0, -2] for rows in made])  # before the full stop


ada, ben = keys_of_lamp("Ada has the lamp."), keys_of_lamp("Ben has the lamp.")
apart = ((ada - ben).norm(dim=-1) / ada.norm(dim=-1)).tolist()
for i, share in enumerate(apart):
    print(f"layer {i}: the two keys differ by {share:4.0%} of their length")

predict("02-a", guess, answer=sum(x < 1e-5 for x in apart), unit="of the 4 layers")

# %% [markdown]
# In layer 0 a lamp is a lamp. From layer 1 on it is *Ada's* lamp or *Ben's* lamp, and
# most of all in layer 2. It has to be: the question "What does Ada have?" can only be
# answered by a layer in which the two differ.
#
# Now the other comparison: one token, its keys in the four layers. Do they look alike?
# The cosine of the angle between two lists of numbers is 1 if they point the same way,
# and 0 if they have nothing in common. We take all tokens of a story and average.

# %%
from tinymodels.dice import Dice
from tinymodels.stories import long_story

text = " ".join(long_story(Dice("layers", 1), sentences=40).sentences)
_, made = run_layers(model, encode(text))

alike, most = {}, 0.0
for name in ("key", "value"):
    rows_LTC = torch.stack([rows[name][0] for rows in made])
    pairs_LLT = torch.cosine_similarity(rows_LTC[:, None], rows_LTC[None], dim=-1)
    alike[name] = pairs_LLT.mean(-1).cpu()
    most = max(most, (alike[name] - torch.eye(4)).abs().max().item())
print(f"between two different layers at most {most:.2f} away from 0")

# %%
fig, axes = plot.figure(6.4, 2.8, columns=2)
for ax, (name, cosine) in zip(axes, alike.items()):
    ax.imshow(cosine, cmap="RdBu", vmin=-1, vmax=1)
    for i in OWN:
        for j in OWN:
            dark = abs(cosine[i, j]) > 0.5
            ax.text(j, i, f"{cosine[i, j].item() + 0.0:.2f}", ha="center", va="center",
                    color="white" if dark else "black")
    ax.set(xticks=OWN, yticks=OWN, title=f"{name}s of one token", xlabel="layer",
           ylabel="layer")
plot.show(fig, alt="Cosine between one token's keys, and between its values, in each "
          "pair of the four layers: 1 on the diagonal, and off it never further from 0 "
          f"than {most:.2f}.")

# %% [markdown]
# Off the diagonal there is next to nothing. The four keys of one token have as little
# in common as four random lists. They answer four different questions.
#
# ## What if two layers shared?
#
# A layer that reads the rows of another keeps none itself. If every second layer did,
# the bytes would be halved. Try it with one: let it read the keys and values of the
# layer below it, and ask the model questions of two kinds. Of **fixed** facts, which were
# true in every text that it learned from ("Where does Ada live?"). And of **given**
# facts, which stand in the text at hand and nowhere else ("What does Ada have?").

# %%
from tinymodels.stories import story
from tinymodels.world import fixed_facts, question

names = [f"tiny_v1-text-seed{seed}" for seed in (0, 1, 2)]
models = [checkpoints.load(n).to(device.pick()).requires_grad_(False) for n in names]

told = [story(Dice("layers", i), sentences=8, facts=4, early=True) for i in range(30)]
asked = {
    "fixed": [(f"{q.ask} {q.begin}", q.answer) for q in map(question, fixed_facts())],
    "given": [(s.prompt(q), q.answer) for s in told for q in s.questions
              if q.begin and not q.fact.relation.fixed],
}
for kind, pairs in asked.items():
    example, answer = pairs[1]
    print(len(pairs), kind, "facts, such as", repr(example[-40:]), "->", answer)

# %% [markdown]
# Everything that we measure from here on is measured on several models: the same size,
# the same kind of texts, other random numbers at the start (seeds). What only one of
# them shows may be chance. This is how right answers are counted:

# %%
def right(model, pairs, source=OWN):
    """Share of right answers. Short prompts are filled up; no one looks there."""
    ids = [tokenizer.encode(prompt) for prompt, _ in pairs]
    longest = max(map(len, ids))
    filled = [row + [0] * (longest - len(row)) for row in ids]
    logits_BTV, _ = run_layers(model, torch.tensor(filled, device=model.device), source)
    last = torch.tensor([len(row) - 1 for row in ids], device=model.device)
    said = logits_BTV[torch.arange(len(ids)), last].argmax(-1).tolist()
    return sum(s == tokenizer.word_id(a) for s, (_, a) in zip(said, pairs)) / len(ids)


def spread(shares):
    return f"{min(shares):4.0%} to {max(shares):4.0%}"

# %% [markdown]
# **Before you run the next cell:** layer 1 reads the keys and values of layer 0. What
# share of the given facts does the model still get right, in percent?

# %% tags=["predict"]
guess = ...
predict("02-b", guess)

# %%
borrowed = {}
for source in (OWN, (0, 0, 2, 3), (0, 1, 1, 3), (0, 1, 2, 2)):
    shares = {kind: [right(m, pairs, source) for m in models]
              for kind, pairs in asked.items()}
    borrowed[source] = shares["given"]
    print(f"layers read from {source}:  fixed {spread(shares['fixed'])}  "
          f" given {spread(shares['given'])}")

shares = borrowed[0, 0, 2, 3]
predict("02-b", guess, answer=round(100 * sum(shares) / len(shares)), unit="%")

# %% [markdown]
# And ordinary text, no questions? Here is the mean error of the next word, on stories
# that no model has seen. It is also called the **loss**: minus the logarithm of the
# probability that the right word got. 0 is perfect; to give all 256 tokens the same
# chance costs 5.55.

# %%
from tinymodels import data
from torch.nn.functional import cross_entropy

unseen = data.batch("text", 0, 0, data.Stage(8, 160), held_out=True).to(model.device)
for source in borrowed:
    errors = [cross_entropy(run_layers(m, unseen.tokens, source)[0].flatten(0, 1),
                            unseen.targets.flatten()).item() for m in models]
    print(f"layers read from {source}: error {min(errors):.2f} to {max(errors):.2f}")

# %% [markdown]
# Two of the three trades ruin the model: what was given in the text is lost, with every
# seed, and ordinary text gets worse. A layer that reads rows which were not made for it
# looks up the wrong cards.
#
# The third is strange. When layer 3 reads the rows of layer 2, the questions still come
# out right; only ordinary text suffers. It seems that the answer has been fetched
# before layer 3 looks around. Keep that in mind for the next section. And note what it
# means for the memory: not every layer's rows are worth the same.
#
# A model can be *trained* to share. Then it makes keys that suit several layers, and
# the bytes fall: chapter 10 shows how V4.1 keeps rows in 4 of its 40 layers. But it has
# to learn that. In a model that did not, each layer needs its own copy.
#
# ## The logit lens
#
# Now to how the lens works. The last two steps of a model are a norm, which brings the
# stream to a standard length, and the **head**, a matrix with a row for each word. They
# can be applied to the stream as it leaves *any* layer. That is the whole trick:

# %%
stream_LTX = lens.streams(model, encode(prompt))[:, 0]  # embedding, then each layer
logits_LTV = model.head(model.norm(stream_LTX))
print(tuple(stream_LTX.shape), "->", tuple(logits_LTV.shape))

answer = torch.tensor(tokenizer.word_id("key"), device=model.device)
rank_L = lens.rank(logits_LTV[:, -1], answer.expand(5))
bits_L = lens.entropy(logits_LTV[:, -1])
for name, rank, bits in zip(depths, rank_L.tolist(), bits_L.tolist()):
    print(f"after {name:9}: rank of “key” {rank:3}, entropy {bits + 0.0:.2f} bits")

# %% [markdown]
# Two numbers for a guess. The **rank** of the answer is 1 if no word is likelier. The
# **entropy** says how undecided the guess is, in bits: 0 bits if it is sure, 1 bit for
# two words alike, 3 bits for eight. You write both in exercise 02.1.
#
# One prompt is an anecdote. Take all the questions from above, and all the models.
#
# **Before you run the next cell:** fixed facts must come from the weights, given facts
# from the text. Which kind of answer comes up *later*? Replace the dots by `"fixed"` or
# `"given"`.

# %% tags=["predict"]
guess = ...
predict("02-c", guess)

# %%
seen = {kind: [lens.follow(m, pairs) for m in models] for kind, pairs in asked.items()}

first = {}
for kind, runs in seen.items():
    first[kind] = [(rank_LN == 1).float().mean(1).tolist() for rank_LN, _ in runs]
    for i, name in enumerate(depths):
        print(f"{kind} facts, first guess right after {name:9}:",
              spread([shares[i] for shares in first[kind]]))

after_2 = {kind: sum(shares[3] for shares in runs) for kind, runs in first.items()}
predict("02-c", guess, answer=min(after_2, key=after_2.get))

# %%
fig, (ranks, bits) = plot.figure(8.4, 2.9, columns=2)
for (kind, runs), marker in zip(seen.items(), "os"):
    for ax, which in ((ranks, 0), (bits, 1)):
        curves = [run[which].double() for run in runs]
        curves = [(c.log() if which == 0 else c).mean(1) for c in curves]
        curves = torch.stack([c.exp() if which == 0 else c for c in curves]).cpu()
        line = ax.plot(curves.mean(0), marker + "-", label=f"{kind} facts")[0]
        ax.fill_between(range(5), curves.amin(0), curves.amax(0), alpha=0.2,
                        color=line.get_color(), lw=0)
ranks.set(yscale="log", title="Rank of the answer")
ranks.set_yticks([1, 2, 5, 10, 20], [1, 2, 5, 10, 20])
ranks.minorticks_off()
bits.set(title="Entropy of the guess, in bits", ylim=(0, None))
for ax in (ranks, bits):
    ax.set_xticks(range(5), ["embed-\nding", *depths[1:]])
ranks.legend()
plot.show(fig, alt="Rank of the answer and entropy of the guess, from the embedding to "
          "the last layer, for fixed and for given facts: ranks fall to 1, entropy to "
          "near 0.")

# %% [markdown]
# Given facts come up in a single step. After layer 1 the guess is nothing; after layer
# 2 the answer stands there: that is the layer whose keys differed most between Ada's
# lamp and Ben's. (So layer 3 had nothing left to look up, and could borrow.) Fixed
# facts are slower. Nobody says them in the text; they are built up from the weights of
# several layers, and some of them become the first guess only in the very last one.
#
# One warning. Look at the right picture near its left end: the guesses there are
# *wrong*, and yet far from undecided (all 256 words alike would be 8 bits). The lens
# reads an early stream with the eyes of the last layer, and the early layers were never
# trained to be read like that. Low entropy alone is no knowledge. (The "tuned lens"
# learns a translation for each layer first; see the sources.)
#
# Look for yourself: every token, every layer. In which rows does the last word come up
# late? Where does a right guess get lost again?

# %%
from tinymodels.widgets import LogitLens, lens_reading

texts = [
    prompt,
    "Where does Ada live? Ada lives in",
    "Ada meets Ben. She lives in",
    "The bell is in the jar. The cup is in the tent.\nWhere is the bell? The bell is in"
    " the",
]
LogitLens([lens_reading(model, tokenizer.encode(t)) for t in texts])

# %% [markdown]
# ## Probes
#
# The lens asks what a model would *say*. Much of what it knows it will never say at
# this place. To find that, train a **probe**: a single matrix that looks at the stream
# and names a class. The model itself is not changed. If so simple a reader can do it on
# texts it has not seen, the knowledge lies open there.
#
# Three questions, from near to far:
#
# - **local:** what kind of character is this token: vowel, consonant, capital, end of a
#   sentence, space, new line? (Unknown names are spelled.)
# - **contextual:** "Ada meets Ben. She". Who is *She*? Twelve women have that pronoun.
# - **the answer:** "What does Ada have? Ada has the". Which of twelve things?
#
# **Before you run the next cell:** the probe sees the token "She" after layer 0, that
# is, after a single look around. In what share of new texts does it name the right
# woman or man, in percent?

# %% tags=["predict"]
guess = ...
predict("02-d", guess)

# %%
from tinymodels import probe

questions = {
    "local: kind of character": (lambda m: probe.characters(m, each=60), 240),
    "contextual: who is She": (probe.pronouns, 384),
    "the answer": (lambda m: probe.answers(m, count=500), 350),
}
found = {name: [probe.by_layer(examples(m), train) for m in models]
         for name, (examples, train) in questions.items()}

for name, runs in found.items():
    shares = [spread(by_depth) for by_depth in zip(*runs)]
    print(f"{name:25}", "  ".join(shares))
answer = sum(run[1] for run in found["contextual: who is She"]) / len(models)
predict("02-d", guess, answer=round(100 * answer), unit="%")

# %%
fig, ax = plot.figure(6.4, 3.0)
for (name, runs), marker in zip(found.items(), "Dso"):
    by_depth = torch.tensor(runs)
    line = ax.plot(by_depth.mean(0), marker + "-", label=name)[0]
    ax.fill_between(range(5), by_depth.amin(0), by_depth.amax(0), alpha=0.2,
                    color=line.get_color(), lw=0)
ax.axhline(1 / 12, color=plot.LIGHT["quiet"], ls=":", lw=1.2)
ax.text(4.05, 1 / 12 + 0.03, "one in twelve", ha="right", fontsize=8)
ax.set_xticks(range(5), depths)
ax.set(ylim=(0, 1.05), title="Share that a probe gets right, in new texts")
ax.legend(loc="center right")
plot.show(fig, alt="Share a probe gets right after the embedding and each layer. Kind "
          "of character: high everywhere. Who is She: chance at the embedding, high "
          "from layer 0 on. The answer: chance until it jumps at one layer.")

# %% [markdown]
# Three questions, three curves.
#
# - What kind of character a token is can be read off the embedding, and stays readable.
#   No layer is needed.
# - Who *She* is cannot be seen in the word "She". (Every "She" looks alike there, and
#   the probe answers with the name that it met most. Each person has 24 texts, so who
#   was met most in training is rarest in the test: hence less than one in twelve.) One
#   look around, and it can. It fades at the end, perhaps to make room for the word to
#   be said next.
# - The answer is nowhere to be found for two layers, and then all at once it is there:
#   at the very layer where the lens saw it come up.
#
# Each layer can only look for what the layers before it have prepared. First who is
# meant, then what is theirs. That is why depth is steps of thought, one after the
# other.
#
# Is the probe perhaps so strong that it finds anything? Give it labels that have been
# shuffled, so that there is nothing to find:

# %%
streams, labels = probe.pronouns(model)
order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
shuffled = probe.by_layer((streams, labels[order]), train=384)
print("shuffled labels:", "  ".join(f"{share:4.0%}" for share in shuffled))

# %% [markdown]
# It finds nothing. So what it found before was there. (Whether the model *uses* it is
# another matter. For that one has to change something and see what happens: chapter
# 03.)
#
# ## Depth: folding a line
#
# Could one very wide layer do the work of many? Sometimes not even nearly. The plainest
# example needs no language at all: fold a strip of paper.
#
# The **tent map** folds the line from 0 to 1 once: it goes up to 1 in the middle, then
# down again. Two ReLU **units** do it exactly: a unit is one number that a layer works
# out, here relu of its input, and relu(x) is x where x is above 0, and 0 elsewhere.
# Fold the folded line, and fold it again: each fold is a layer of two units that reads
# the layer before.

# %%
def relu(x):
    return x.clamp(min=0)


def fold(x):
    return 2 * relu(x) - 4 * relu(x - 0.5)


x = torch.linspace(0, 1, 4097, dtype=torch.float64)
fig, axes = plot.figure(8.4, 2.0, columns=4)
y = x
for folds, ax in enumerate(axes, start=1):
    y = fold(y)  # one more layer
    ax.plot(x, y, lw=1.6)
    pieces = 1 + (y.diff()[1:] != y.diff()[:-1]).sum().item()
    ax.set(title=f"layers {folds}, units {2 * folds}:\n{pieces} pieces", ylim=(0, 1.05))
plot.show(fig, alt="The tent map folded one to four times: 2, 4, 8 and 16 straight "
          "pieces.")

# %% [markdown]
# Each layer doubles the number of straight pieces. Now do the same in **one** layer: a
# sum of units side by side, each with its own start and its own slope. A unit is
# straight except for one bend. So a sum of M units has at most M bends.
#
# **Before you run the next cell:** ten layers of two units, 20 units in all, fold the
# line ten times. How many units does one layer need for the same curve?

# %% tags=["predict"]
guess = ...
predict("02-e", guess)

# %%
from tinymodels import tent

print("folds   pieces   units: deep   wide   largest difference")
for folds in (1, 2, 3, 5, 10):
    x = tent.grid(4 * 2**folds)
    deep, wide = tent.deep(folds), tent.wide(folds)
    pieces = tent.pieces(tent.run(deep, x))
    apart = (tent.run(deep, x) - tent.run(wide, x)).abs().max().item()
    units = f"{tent.units(deep):13} {tent.units(wide):6,}"
    print(f"{folds:5} {pieces:8,} {units} {apart:12}")

predict("02-e", guess, answer=tent.units(tent.wide(10)), unit="units")

# %% [markdown]
# Both are exact, to the last bit: the largest difference is 0. Twenty units against
# 1,024. And fewer cannot do it. 1,024 pieces have 1,023 bends between them, so there
# must be a unit at each of these. Could that be all? The curve goes up and down with
# slopes of 1,024 and -1,024, so each of those units turns the slope by 2,048. Left of
# all the bends a unit is either 0 or as steep as it ever gets, 2,048; so the first
# slope would be a multiple of that. But it is 1,024. One more unit is needed, which
# makes 1,024. (You build this layer in exercise 02.4.)
#
# A deep stack works on what it has made. It uses the same two units on all pieces at
# once.
#
# ## Depth in a model that reads
#
# Now the same question for transformers, trained, with equal numbers of parameters. The
# task is the smallest one that a memory is for: pairs of words are named, then one word
# is named again, and the other must follow.
#
# > lamp Ada  blue park  cup red  ...  blue **park**
#
# Three models have one, two and four layers. What is saved in layers is given to the
# FFN in width, so that all three have exactly as many parameters. Each was trained with
# three seeds on the same texts. `python -m tinymodels.depth` trains them again, in
# about 9 minutes.

# %%
from tinymodels import depth

shipped = depth.results()
runs = shipped["look_up"]["runs"]
for layers in depth.WIDTHS:
    some = [run for run in runs if run["layers"] == layers]
    held = some[0]["bytes_per_token"]
    print(f"layers: {layers}, FFN {depth.WIDTHS[layers]:3} wide: "
          f"{some[0]['parameters']:,} parameters, {held:5,} bytes a token, "
          f"found {spread([run['right'][-1] for run in some])}")

# %%
fig, ax = plot.figure(6.4, 2.8)
colours = dict(zip(depth.WIDTHS, plot.PALETTE))
steps = [depth.EVERY * (i + 1) for i in range(len(runs[0]["right"]))]
for run in runs:
    label = f"layers: {run['layers']}" if run["seed"] == 0 else None
    ax.plot(steps, run["right"], color=colours[run["layers"]], lw=1.4, label=label)
ax.set(xlabel="training steps", ylim=(0, 1.05), title="Share of second words found")
ax.legend(loc="center right")
plot.show(fig, alt="One layer stays near a third in all three seeds; two and four "
          "layers reach 100 %.")

# %% [markdown]
# One layer never gets beyond guessing: of two to four words that were named second, one
# is right. Training is not to blame, nor is size. When the second "blue" looks for the
# first, it finds it, and is told what that card knows. But the card of "blue" was made
# before "park" was read, and the card of "park" was made from "park" alone. In one
# layer **no card says "I came after blue"**.
#
# With two layers there is a way. In the first, each token looks at the one before it
# and adds its name to its own stream. In the second, the card of "park" says "I came
# after blue", and "blue" can look for just that. Two looks, one after the other. Width
# is a poor substitute for the second: to do it in one look, a model would have to be
# larger by far (Sanford et al. prove how much). In large models the same two steps are
# called an induction head.
#
# And the price? Look at the bytes: two layers keep twice as much as one, four keep four
# times as much. **Depth is paid for in cache.**
#
# ## What can be said and what is learned
#
# The folded line had a proof, so it should be an even easier victory. Train both
# shapes, 241 parameters each, on the line folded one to five times, with five seeds:

# %%
tries = shipped["fold"]["runs"]
print("root of the mean squared error, one for each seed (best constant: 0.29)")
for folds in depth.FOLDS:
    for shape in depth.SHAPES:
        errors = sorted(t["error"] for t in tries
                        if (t["folds"], t["shape"]) == (folds, shape))
        print(f"{folds} folds, {shape:17}", *(f"{e:.3f}" for e in errors))

# %% [markdown]
# Up to three folds, both learn it. From four folds on, **neither does**: with four the
# errors are half of the best constant's or more, with five they come close to it. It is
# not that they could not hold the answer. One layer of 80 has more units than the 32
# that five folds need, and four layers of eight are more than we used by hand. The deep
# network comes a little closer, and that is all.
#
# So there are two questions, and this chapter has shown an example for each answer.
# *Can* a network of this shape hold the function? Depth won by 20 units against 1,024.
# And will training *find* it? Training walks downhill from a random start, and from
# there clean folds are hard to reach. In the looking-up task it found its two steps in
# every seed.
#
# ## The bill, layer by layer
#
# Back to the memory. Each layer keeps its rows; the bytes of a token are the sum over
# all layers. For the first DeepSeek, weighed in its real storage:

# %%
from tinymodels import ledger
from tinymodels.cache import allocate
from tinymodels.published import get

tokens = 100
memory = allocate("deepseek-67b", tokens)  # its cache, without its weights
rows = memory.per_layer()
a = get("deepseek-67b").config.layers[0].attention

print("one layer, by formula: ", 2 * a.kv_heads * a.head_dim * 2, "bytes per token")
print("one layer, measured:   ", rows[0]["main"] // tokens)
print("layers with their own: ", sum(row["owner"] == row["layer"] for row in rows))
print("all layers, measured:  ", f"{sum(row['main'] for row in rows) // tokens:,}")
print("one layer, 1M tokens:  ", plot.bytes_text(rows[0]["main"] // tokens * 10**6))

# %% [markdown]
# **95 × 4,096 = 389,120.** The layers and heads are stated by the makers (status C),
# the sum was read off their chart (R), and the bytes of one layer are worked out here
# (D). At a million tokens *one* layer holds 4.1 GB, and there are 95 of them.
#
# The layers are the one factor in this product that nobody wants to give up: they are
# what makes the model clever. V1 has 95, V4.1 still has 40. So the later chapters leave
# the layers and go for the other factor, the bytes of one layer; until, in chapter 10,
# most layers stop keeping rows at all. Here is where each generation stands: how many
# layers it has, and how many of them keep far memory.

# %%
print("                       layers   keep rows   bytes per token")
for name in ("deepseek-67b", "deepseek-v2", "deepseek-v3", "deepseek-v3.2",
             "deepseek-v4-flash", "deepseek-v4.1-flash"):
    rows = allocate(name, 256).per_layer()
    keep = sum(row["main"] + row["index"] > 0 for row in rows)
    print(f"{name:20} {len(rows):8} {keep:11} {plot.exact(ledger.rate(name)):>17}")

# %% [markdown]
# ## Exercises
#
# [Exercises 02](../exercises/02__layers.ipynb): write the logit lens, count bytes with
# layers that differ and borrow, fit a probe, and build the folded line in one layer.
# About 70 minutes.
#
# What did you misjudge in this chapter?

# %% tags=["nbval-ignore-output"]
predict("02")

# %% [markdown]
# ## The ledger

# %%
from tinymodels.widgets import ledger_widget

ledger_widget(through="02")

# %% [markdown]
# ## What it costs
#
# | | twice as wide | twice as deep |
# |---|---|---|
# | parameters, FLOPs | grow | grow |
# | bytes per token | the same if kv heads stay the same | twice |
# | time for one token | wide layers run in parallel | one layer waits for the other |
# | looks around, one after the other | as many as before | twice |
#
# Depth is paid three times: in arithmetic, in waiting, and in bytes for every token
# that is remembered. What it buys is steps of thought that build on each other. No
# DeepSeek gave it up.
#
# What runs through all the layers, and is never kept at all? That is chapter 03.
#
# ## Sources
#
# - Logit lens: nostalgebraist 2020, "interpreting GPT: the logit lens". Tuned lens:
#   Belrose et al. 2023, [arXiv 2303.08112](https://arxiv.org/abs/2303.08112).
# - Linear probes: Alain and Bengio 2016, [arXiv
#   1610.01644](https://arxiv.org/abs/1610.01644).
# - Depth and the tent map: Telgarsky 2015, [arXiv
#   1509.08101](https://arxiv.org/abs/1509.08101).
# - Two layers for looking up: Olsson et al. 2022, induction heads, [arXiv
#   2209.11895](https://arxiv.org/abs/2209.11895); one layer is not enough: Sanford et
#   al. 2024, [arXiv 2408.14332](https://arxiv.org/abs/2408.14332).
# - Models trained so that layers share keys and values: Brandon et al. 2024, [arXiv
#   2405.12981](https://arxiv.org/abs/2405.12981).
# - DeepSeek LLM 67B, [arXiv 2401.02954](https://arxiv.org/abs/2401.02954), and its
#   released configuration: 95 layers, 8 kv heads, head dim 128 (C); 389,120 bytes per
#   token (R); 4,096 bytes a layer (D).
#
# Next: [03 · The residual stream](03__residual_stream.ipynb): what runs past all the
# layers.
