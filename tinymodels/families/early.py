"""Models from before names were agreed on: each says heads, layers and width in words of its own.

GPT-2 and those after it (`n_head`, `n_layer`, `n_embd`), GPT-Neo, BLOOM, Falcon, MPT, DBRX,
ChatGLM, OLMo 1, Qwen 1, EXAONE 3.
"""

from dataclasses import dataclass

from ..config import GQA, Layer, ModelConfig
from .fields import Fields
from .plain import Reader


@dataclass(frozen=True)
class Names:
    """Under which names a family states its shapes, the later names among them.

    no_limit: the context of families whose positions have no end, so that their files give none.
    """

    heads: tuple[str, ...] = ("n_head", "num_attention_heads")
    layers: tuple[str, ...] = ("n_layer", "num_hidden_layers")
    width: tuple[str, ...] = ("n_embd", "hidden_size")
    context: tuple[str, ...] = ("n_positions", "max_position_embeddings")
    no_limit: int = 2048


GPT2 = Names(no_limit=1024)
GPTJ = Names()
BLOOM = Names(width=("hidden_size", "n_embed"), context=("seq_length",))
MPT = Names(("n_heads", "num_attention_heads"), ("n_layers",), ("d_model",), ("max_seq_len",))
OPT = Names(
    ("num_attention_heads",), ("num_hidden_layers",), ("hidden_size",), ("max_position_embeddings",)
)
FALCON = Names(
    ("num_attention_heads", "n_head"),
    ("num_hidden_layers", "n_layer"),
    ("hidden_size",),
    ("max_position_embeddings",),
)
CHATGLM = Names(("num_attention_heads",), ("num_layers",), ("hidden_size",), ("seq_length",))
OLMO1 = Names(("n_heads",), ("n_layers",), ("d_model",), ("max_sequence_length",))
GPT_NEO = Names(("num_heads",), ("num_layers",), ("hidden_size",), ("max_position_embeddings",))
DBRX = Names(("n_heads",), ("n_layers",), ("d_model",), ("max_seq_len",))
EXAONE = Names(
    ("num_attention_heads",),
    ("num_layers", "num_hidden_layers"),
    ("hidden_size",),
    ("max_position_embeddings",),
    no_limit=4096,
)
QWEN1 = Names(("num_attention_heads",), ("num_hidden_layers",), ("hidden_size",), ("seq_length",))


def _read(fields: Fields, names: Names, kv_heads: int, dim: int | None, tied: bool) -> ModelConfig:
    """A model whose layers are all full. kv_heads 0: as many as query heads."""
    heads = fields.integer(*names.heads)
    width = fields.integer(*names.width)
    if dim is None:
        if width % heads:
            fields.refuse(f"{names.width[0]} is {width}", f"the {heads} heads must divide it")
        dim = width // heads
    kv_heads = kv_heads or heads
    if heads % kv_heads:
        fields.refuse(f"{kv_heads} kv heads are given", f"they must divide the {heads} query heads")
    return ModelConfig(
        name="config",
        vocab=fields.integer("vocab_size") if fields.has("vocab_size") else None,
        width=width,
        layers=(Layer(GQA(heads, kv_heads, dim), None),) * fields.layers(*names.layers),
        context=fields.integer(*names.context, default=names.no_limit),
        tied=fields.flag("tie_word_embeddings", default=tied),
    )


def _every_head_its_own(names: Names, tied: bool = True) -> Reader:
    """A reader of models with as many kv heads as query heads."""
    return lambda fields: _read(fields, names, 0, None, tied)


def _one_for_all(fields: Fields, default: bool) -> bool:
    """multi_query: one kv head serves every query head."""
    if not fields.has("multi_query"):
        fields.note(
            f"multi_query is not in the file; the family's default, {str(default).lower()}, is "
            "taken"
        )
    return fields.flag("multi_query", default=default)


def read_gpt2(fields: Fields) -> ModelConfig:
    """Every head its own, but for SantaCoder, whose first files say "multiquery"."""
    kinds = ("multihead", "multiquery")
    kind = kinds[0]
    if fields.has("attention_head_type"):
        kind = fields.word("attention_head_type", allowed=kinds)
    return _read(fields, GPT2, int(kind == "multiquery"), None, tied=True)


def read_phi_msft(fields: Fields) -> ModelConfig:
    """Phi 1, 1.5 and 2 as first released: `n_head_kv`, null for as many as query heads."""
    return _read(fields, GPTJ, fields.optional("n_head_kv") or 0, None, tied=False)


def read_bigcode(fields: Fields) -> ModelConfig:
    """StarCoder 1, SantaCoder: one kv head unless the file says otherwise."""
    return _read(fields, GPT2, 1 if _one_for_all(fields, True) else 0, None, tied=True)


def read_falcon(fields: Fields) -> ModelConfig:
    """7B: one kv head for all (`multi_query`). 40B and 180B: `num_kv_heads`, once `n_head_kv`."""
    if fields.flag("new_decoder_architecture", default=fields.has("n_head_kv")):
        heads = fields.integer(*FALCON.heads)
        kv_heads = fields.integer("num_kv_heads", "n_head_kv", default=heads)
        if kv_heads < heads:
            fields.note(
                f"each kv head is counted once; transformers copies it to all its query heads and "
                f"then holds {heads // kv_heads} times as much"
            )
    else:
        kv_heads = 1 if _one_for_all(fields, True) else 0
    return _read(fields, FALCON, kv_heads, None, tied=True)


def read_mpt(fields: Fields) -> ModelConfig:
    """Every head its own keys and values, unless `attn_config` says otherwise."""
    attention = Fields(fields.group("attn_config"), fields.where)
    kinds = ("multihead_attention", "multiquery_attention", "grouped_query_attention")
    match attention.word("attn_type", allowed=kinds, default=kinds[0]):
        case "multiquery_attention":
            kv_heads = 1
        case "grouped_query_attention":
            kv_heads = attention.integer("kv_n_heads")
        case _:
            kv_heads = 0
    return _read(fields, MPT, kv_heads, None, tied=True)


def read_dbrx(fields: Fields) -> ModelConfig:
    """`kv_n_heads` inside `attn_config`; the class's default is one."""
    attention = Fields(fields.group("attn_config"), f"{fields.where}: attn_config")
    kv_heads = attention.integer("kv_n_heads", default=1)
    fields.notes += attention.notes
    return _read(fields, DBRX, kv_heads, None, tied=False)


def read_gpt_neo(fields: Fields) -> ModelConfig:
    """Every second layer looks at the newest `window_size` tokens, and yet keeps all rows."""
    fields.note("local layers look at a window, but no row is dropped: counted as full layers")
    return _read(fields, GPT_NEO, 0, None, tied=True)


def read_exaone(fields: Fields) -> ModelConfig:
    """EXAONE 3 and 3.5."""
    kv_heads = fields.optional("num_key_value_heads", default=8) or 0
    return _read(fields, EXAONE, kv_heads, fields.optional("head_dim"), tied=False)


def read_chatglm(fields: Fields) -> ModelConfig:
    """ChatGLM 2 and 3, GLM-4-9B: `multi_query_group_num` kv heads if `multi_query_attention`."""
    grouped = fields.flag("multi_query_attention", default=False)
    kv_heads = fields.integer("multi_query_group_num", default=1) if grouped else 0
    return _read(fields, CHATGLM, kv_heads, fields.optional("kv_channels", default=None), False)


def read_hf_olmo(fields: Fields) -> ModelConfig:
    """OLMo 1 as first released: `n_kv_heads`, or the older switch `multi_query_attention`."""
    kv_heads = fields.optional("n_kv_heads")
    if kv_heads is None:
        kv_heads = int(fields.flag("multi_query_attention", default=False))
    config = _read(fields, OLMO1, kv_heads, None, tied=True)
    return config.with_(tied=fields.flag("weight_tying", default=config.tied))


def read_qwen1(fields: Fields) -> ModelConfig:
    """The first Qwen: heads of `kv_channels` values."""
    return _read(fields, QWEN1, 0, fields.optional("kv_channels", default=128), tied=False)


READERS: dict[str, Reader] = {
    "gpt2": read_gpt2,
    "gptj": _every_head_its_own(GPTJ, tied=False),
    "codegen": _every_head_its_own(GPTJ, tied=False),
    "bloom": _every_head_its_own(BLOOM),
    "opt": _every_head_its_own(OPT),
    "gpt_neox": _every_head_its_own(OPT, tied=False),
    "phi-msft": read_phi_msft,
    "gpt_bigcode": read_bigcode,
    "falcon": read_falcon,
    "RefinedWebModel": read_falcon,
    "RefinedWeb": read_falcon,
    "mpt": read_mpt,
    "dbrx": read_dbrx,
    "gpt_neo": read_gpt_neo,
    "exaone": read_exaone,
    "chatglm": read_chatglm,
    "hf_olmo": read_hf_olmo,
    "qwen": read_qwen1,
}
