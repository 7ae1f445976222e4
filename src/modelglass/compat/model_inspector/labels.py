"""What settings of a configuration are called in words, in each language; their keys differ by library."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from modelglass.report import huggingface_keys as hf

if TYPE_CHECKING:
    from modelglass.compat.model_inspector.words import Words

_PREFIX = "setting: "


class _Setting(NamedTuple):
    """A setting, in English and Korean, and the keys that stand for it."""

    english: str
    korean: str
    keys: tuple[str, ...]


_SETTINGS = (
    _Setting("Architecture", "아키텍처", ("architecture", "architectures", "arch")),
    _Setting("Model Class", "모델 클래스", ("_target_", "class_path")),
    _Setting("Model Type", "모델 타입", ("model_type",)),
    _Setting(
        "Sequence Length", "시퀀스 길이", ("seq_len", "sequence_length", "context_length", "max_length")
    ),
    _Setting("Maximum Positions", "최대 위치 수", (*hf.POSITIONS, "block_size")),
    _Setting("Hidden Dimension", "은닉 차원", ("hidden", "hidden_dim", "embed_dim", *hf.HIDDEN_SIZE)),
    _Setting("Depth (Layers)", "깊이 (레이어 수)", ("depth", *hf.LAYERS, *hf.LAYERS_OF_DECODER)),
    _Setting("Attention Heads", "어텐션 헤드 수", ("heads", "nhead", *hf.HEADS, *hf.HEADS_OF_DECODER)),
    _Setting("Key-Value Heads", "키-값 헤드 수", (*hf.KV_HEADS, *hf.KV_HEADS_OF_DECODER)),
    _Setting("Head Dimension", "헤드 차원", hf.HEAD_DIM),
    _Setting(
        "Dropout", "드롭아웃", ("dropout", "dropout_rate", "drop_rate", "hidden_dropout_prob", "resid_pdrop")
    ),
    _Setting(
        "Attention Dropout",
        "어텐션 드롭아웃",
        ("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop"),
    ),
    _Setting("Embedding Dropout", "임베딩 드롭아웃", ("embedding_dropout", "embd_pdrop")),
    _Setting("Fusion Strategy", "융합 방식", ("fusion", "fusion_strategy")),
    _Setting("Label Dimension", "레이블 차원", ("label_dim",)),
    _Setting("Time Embed Dim", "시간 임베딩 차원", ("t_embed_dim", "time_embed_dim", "time_embedding_dim")),
    _Setting("MLP Ratio", "MLP 비율", ("mlp_ratio",)),
    _Setting(
        "Feed-Forward Dimension",
        "피드포워드 차원",
        ("intermediate_size", "ffn_dim", "d_ff", "dim_feedforward", "n_inner"),
    ),
    _Setting("Vocabulary Size", "어휘 크기", hf.VOCABULARY),
    _Setting("Experts", "전문가 수", hf.EXPERTS),
    _Setting("Experts per Token", "토큰당 전문가 수", hf.CHOSEN_EXPERTS),
    _Setting("Sliding Window", "슬라이딩 윈도", hf.SLIDING_WINDOW),
    _Setting(
        "Activation", "활성화 함수", ("hidden_act", "activation", "activation_function", "hidden_activation")
    ),
    _Setting(
        "Normalization Epsilon",
        "정규화 엡실론",
        ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps"),
    ),
    _Setting("RoPE Base", "RoPE 기준값", ("rope_theta",)),
    _Setting("Tied Embeddings", "임베딩 공유", ("tie_word_embeddings",)),
    _Setting("Element Type", "자료형", hf.DTYPE),
    _Setting("Initialization Range", "초기화 범위", ("initializer_range",)),
    _Setting("Image Size", "이미지 크기", ("image_size", "img_size")),
    _Setting("Patch Size", "패치 크기", ("patch_size",)),
    _Setting("Input Channels", "입력 채널 수", ("in_channels", "in_chans", "num_channels", "input_channels")),
    _Setting("Output Channels", "출력 채널 수", ("out_channels", "output_channels")),
    _Setting("Classes", "클래스 수", ("num_classes", "num_labels", "n_classes")),
    _Setting("Diffusion Steps", "확산 단계 수", ("timesteps", "num_timesteps", "num_train_timesteps")),
    _Setting("Batch Size", "배치 크기", ("batch_size", "train_batch_size")),
    _Setting("Learning Rate", "학습률", ("learning_rate", "lr")),
    _Setting("Weight Decay", "가중치 감쇠", ("weight_decay",)),
    _Setting("Epochs", "에포크 수", ("epochs", "num_epochs", "max_epochs", "num_train_epochs")),
    _Setting("Warmup Steps", "워밍업 단계 수", ("warmup_steps", "num_warmup_steps")),
    _Setting("Optimizer", "옵티마이저", ("optimizer",)),
    _Setting("Scheduler", "스케줄러", ("scheduler", "lr_scheduler")),
    _Setting("Random Seed", "난수 시드", ("seed", "random_seed")),
    _Setting("Time Transform", "시간 변환", ("time_transform",)),
    _Setting("Affine Offsets", "아핀 오프셋", ("affine_offset", "affine_offsets")),
    _Setting("Affine Scales", "아핀 스케일", ("affine_scale", "affine_scales")),
    _Setting("Label Offsets", "레이블 오프셋", ("label_offset", "label_offsets")),
    _Setting("Label Scales", "레이블 스케일", ("label_scale", "label_scales")),
)

WORDS = {_PREFIX + each.english: (each.english, each.korean) for each in _SETTINGS}
_BY_KEY = {key: _PREFIX + each.english for each in _SETTINGS for key in each.keys}


def readable(path: str, say: Words) -> str:
    """A setting in words with its key behind them; the key alone where it has no known meaning."""
    known = _BY_KEY.get(path.rpartition(".")[2])
    return path if known is None else f"{say(known)} [{path}]"
