"""Names in released V4 and V4.1 checkpoints -> names here (rules as in `weights.py`).

V4's are those of transformers' DeepseekV4, as far as they differ from its V2 to V3.2; V4.1's are
those of the released inference code.
"""

LAYER = r"model\.layers\.(\d+)\."
SELF = LAYER + r"self_attn\."
POOL = SELF + r"compressor\."
INDEXER = POOL + r"indexer\."

V4_TRANSFORMERS = (
    (r"model\.hc_head\.hc_(fn|base|scale)", r"fold.\1"),
    (LAYER + r"attn_hc\.(fn|base|scale)", r"layers.\1.attention_residual.\2"),
    (LAYER + r"ffn_hc\.(fn|base|scale)", r"layers.\1.ffn_residual.\2"),
    (LAYER + r"mlp\.gate\.tid2eid", r"layers.\1.ffn.router.table"),
    (SELF + r"sinks", r"layers.\1.attention.sink"),
    (SELF + r"q_a_norm\.weight", r"layers.\1.attention.query_norm.weight"),
    (SELF + r"kv_proj\.weight", r"layers.\1.attention.kv.weight"),
    (SELF + r"kv_norm\.weight", r"layers.\1.attention.kv_norm.weight"),
    (SELF + r"o_a_proj\.weight", r"layers.\1.attention.output.reduce"),
    (SELF + r"o_b_proj\.weight", r"layers.\1.attention.output.expand.weight"),
    (POOL + r"kv_proj\.weight", r"layers.\1.attention.compressor.value.weight"),
    (POOL + r"gate_proj\.weight", r"layers.\1.attention.compressor.gate.weight"),
    (POOL + r"position_bias", r"layers.\1.attention.compressor.position_bias"),
    (POOL + r"kv_norm\.weight", r"layers.\1.attention.compressor.norm.weight"),
    (INDEXER + r"kv_proj\.weight", r"layers.\1.attention.indexer.compressor.value.weight"),
    (INDEXER + r"gate_proj\.weight", r"layers.\1.attention.indexer.compressor.gate.weight"),
    (INDEXER + r"position_bias", r"layers.\1.attention.indexer.compressor.position_bias"),
    (INDEXER + r"kv_norm\.weight", r"layers.\1.attention.indexer.compressor.norm.weight"),
    (INDEXER + r"q_b_proj\.weight", r"layers.\1.attention.indexer.query.weight"),
    (INDEXER + r"scorer\.weights_proj\.weight", r"layers.\1.attention.indexer.head_weight.weight"),
)

RELEASED = r"layers\.(\d+)\."
ATTN = RELEASED + r"attn\."
FFN = RELEASED + r"ffn\."

V4_1_RELEASED = (
    (r"(embed|norm|head)\.weight", r"\1.weight"),
    (RELEASED + r"attn_norm\.weight", r"layers.\1.attention_norm.weight"),
    (RELEASED + r"ffn_norm\.weight", r"layers.\1.ffn_norm.weight"),
    (RELEASED + r"hc_attn_(fn|base|scale)", r"layers.\1.attention_residual.\2"),
    (RELEASED + r"hc_ffn_(fn|base|scale)", r"layers.\1.ffn_residual.\2"),
    (ATTN + r"attn_sink", r"layers.\1.attention.sink"),
    (ATTN + r"wq_a\.weight", r"layers.\1.attention.query_down.weight"),
    (ATTN + r"q_norm\.weight", r"layers.\1.attention.query_norm.weight"),
    (ATTN + r"wq_b\.weight", r"layers.\1.attention.query.weight"),
    (ATTN + r"wkv\.weight", r"layers.\1.attention.kv.weight"),
    (ATTN + r"kv_norm\.weight", r"layers.\1.attention.kv_norm.weight"),
    (ATTN + r"wo_a\.weight", r"layers.\1.attention.output.reduce"),
    (ATTN + r"wo_b\.weight", r"layers.\1.attention.output.expand.weight"),
    (ATTN + r"compressor\.wkv\.weight", r"layers.\1.attention.compressor.value.weight"),
    (ATTN + r"compressor\.wgate\.weight", r"layers.\1.attention.compressor.gate.weight"),
    (ATTN + r"compressor\.norm\.weight", r"layers.\1.attention.compressor.norm.weight"),
    (ATTN + r"indexer\.wq_b\.weight", r"layers.\1.attention.indexer.query.weight"),
    (ATTN + r"indexer\.wk\.weight", r"layers.\1.attention.indexer.key.weight"),
    (ATTN + r"indexer\.k_norm\.weight", r"layers.\1.attention.indexer.key_norm.weight"),
    (ATTN + r"indexer\.weights_proj\.weight", r"layers.\1.attention.indexer.head_weight.weight"),
    (FFN + r"gate\.weight", r"layers.\1.ffn.router.gate.weight"),
    (FFN + r"gate\.bias", r"layers.\1.ffn.router.bias"),
    (FFN + r"shared_experts\.w1\.weight", r"layers.\1.ffn.shared.gate.weight"),
    (FFN + r"shared_experts\.w3\.weight", r"layers.\1.ffn.shared.up.weight"),
    (FFN + r"shared_experts\.w2\.weight", r"layers.\1.ffn.shared.down.weight"),
)

V4_1_RELEASED_EXPERTS = (
    (FFN + r"experts\.(\d+)\.w1\.weight", r"layers.\1.ffn.experts.gate_up", "gate"),
    (FFN + r"experts\.(\d+)\.w3\.weight", r"layers.\1.ffn.experts.gate_up", "up"),
    (FFN + r"experts\.(\d+)\.w2\.weight", r"layers.\1.ffn.experts.down", "down"),
)
