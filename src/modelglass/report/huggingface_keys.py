"""Under which keys the configurations of Hugging Face models keep each fact, the usual key first.

Libraries and families differ. `*_OF_MODULES` are the attributes of modules that hold the same facts.
"""

from __future__ import annotations

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
LAYERS_OF_DECODER = ("decoder_layers", "num_decoder_layers", "num_transformer_layers")
HIDDEN_SIZE = ("hidden_size", "n_embd", "d_model", "model_dim", "dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
HEADS_OF_DECODER = ("decoder_attention_heads", "num_decoder_attention_heads", "attention_heads")
HEADS_OF_MODULES = ("num_heads", "n_heads", "num_attention_heads", "n_head", "nhead", "heads")
KV_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "n_kv_heads",
    "kv_n_heads",
    "multi_query_group_num",
    "num_query_groups",
)
KV_HEADS_OF_DECODER = ("decoder_num_key_value_heads",)
KV_HEADS_OF_MODULES = ("num_key_value_heads", "n_kv_heads", "num_kv_heads", "n_kv_head", "n_head_kv")
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels", "d_kv")
HEAD_DIM_OF_MODULES = ("head_dim", "head_size", "dim_head", "attention_head_size")
VOCABULARY = ("vocab_size", "padded_vocab_size", "n_vocab")
POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "n_ctx",
    "max_sequence_length",
)
SLIDING_WINDOW = ("sliding_window", "attention_window_size", "attention_chunk_size", "sliding_window_size")
EXPERTS = (
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "num_routed_experts",
    "moe_num_experts",
    "n_experts",
    "global_num_experts",
)
CHOSEN_EXPERTS = (  # for a token
    "num_experts_per_tok",
    "moe_k",
    "num_experts_per_token",
    "experts_per_token",
    "num_selected_experts",
    "topk",
    "moe_topk",
    "moe_top_k",
)
# "top_k" is also among the settings of sampling, which older configurations hold.
CHOSEN_EXPERTS_OF_MODULES = (*CHOSEN_EXPERTS, "top_k")
DTYPE = ("torch_dtype", "dtype")
# One word for each layer; a pattern has a letter for each.
LAYER_KINDS = ("layer_types", "layers_block_type", "block_types", "_block_types")
LAYER_PATTERN = "hybrid_override_pattern"
# The configuration of the language model, where it is one part of several.
TEXT_PARTS = ("text_config", "thinker_config", "llm_config", "language_config", "language_model_config")
