"""Every word that the inspector itself says, in each of its languages."""

from __future__ import annotations

from collections.abc import Callable

from modelglass.compat.model_inspector.labels import WORDS as SETTINGS

LANGUAGES = ("en", "ko")

Words = Callable[[str], str]

_WORDS: dict[str, tuple[str, str]] = {
    "title": ("🏗️  Model Architecture Inspector", "🏗️  모델 아키텍처 인스펙터"),
    # the summary
    "summary": ("📋 Model Summary", "📋 모델 요약"),
    "type": ("📋 Model Type", "📋 모델 타입"),
    "type-unknown": ("unknown (file)", "알 수 없음 (파일)"),
    "config": ("⚙️  Configuration", "⚙️  설정 정보"),
    "config-more": ("{n} more, which --verbose shows", "{n}개 더 있음 (--verbose로 표시)"),
    "statistics": ("📊 Parameter Statistics", "📊 파라미터 통계"),
    "params": ("Total Parameters", "전체 파라미터"),
    "active": ("Active Parameters", "활성 파라미터"),
    "logical": ("Logical Parameters", "논리적 파라미터"),
    "trainable": ("Trainable Parameters", "학습 가능 파라미터"),
    "frozen": ("Frozen Parameters", "고정된 파라미터"),
    "buffers": ("Buffers", "버퍼"),
    "model-size": ("Model Size", "모델 크기"),
    "uninitialised": ("+ uninitialised", "+ 초기화되지 않음"),
    "unknown": ("unknown", "알 수 없음"),
    "file-silent": ("unknown (no file says)", "알 수 없음 (파일에는 기록되지 않음)"),
    "by-type": ("🔍 Parameters by Module Type", "🔍 모듈 타입별 파라미터 분포"),
    "guessed": ("by names and shapes", "이름과 형태로 추정"),
    "total": ("Total", "합계"),
    "no-params": ("none", "없음"),
    "normalisation": ("🔧 Normalization Metadata", "🔧 정규화 메타데이터"),
    "no-values": ("no values", "값 없음"),
    # the checkpoint
    "checkpoint": ("🔍 Checkpoint", "🔍 체크포인트 검사"),
    "file": ("File", "파일"),
    "format": ("Format", "형식"),
    "tensors": ("Tensors", "텐서 수"),
    "prefix": ("Prefix", "접두사"),
    "prefix-off": ("{p} taken off every name", "모든 이름에서 {p} 제거"),
    "found-under": ("Found Under", "저장 키"),
    "training": ("🏃 Training State", "🏃 학습 상태"),
    "weights": ("📈 Weight Statistics", "📈 가중치 통계"),
    "values": ("Values", "값의 수"),
    "range": ("Range", "범위"),
    "range-text": ("{low} to {high}", "{low} ~ {high}"),
    "zeros": ("Zeros", "0인 값"),
    "nan": ("NaN", "NaN"),
    "inf": ("Inf", "Inf"),
    "strange": ("in {names}", "({names})"),
    "largest-value": ("Largest", "절댓값 최대"),
    "matching": ("🔗 Weights of the Checkpoint in the Model", "🔗 체크포인트와 모델의 가중치 대조"),
    "matched": ("Matched", "일치"),
    "matched-text": ("{found} of {all} tensors", "텐서 {all}개 중 {found}개"),
    "prefix-checkpoint": (
        "{p} before the checkpoint's names, taken off",
        "체크포인트 이름 앞의 {p} 제거",
    ),
    "prefix-model": ("{p} before the model's names", "모델 이름 앞에 {p} 추가"),
    "names": ("Names", "이름"),
    "names-text": ("as {library} stores them", "{library}의 저장 형식 기준"),
    "tied": ("Tied", "공유 가중치"),
    "tied-text": ("{names}: absent by design", "{names}: 설계상 저장되지 않음"),
    "missing": ("Missing", "누락"),
    "unexpected": ("Unexpected", "예상 밖"),
    "reshaped": ("Reshaped", "형태 불일치"),
    "retyped": ("Retyped", "자료형 차이"),
    "none": ("none", "없음"),
    "model-has": ("model {a}, checkpoint {b}", "모델 {a}, 체크포인트 {b}"),
    "stored-as": ("stored as {name}", "저장된 이름 {name}"),
    "and-more": ("… and {n} more", "… 외 {n}개"),
    # every module
    "modules": ("🧩 Modules", "🧩 모듈 목록"),
    "path": ("path", "경로"),
    "module-type": ("type", "타입"),
    "own": ("own params", "자체 파라미터"),
    "with-children": ("total params", "전체 파라미터"),
    "output": ("output shape", "출력 형태"),
    "not-called": ("not called", "호출되지 않음"),
    # flow
    "flow": ("🔄 Model Flow", "🔄 데이터 플로우"),
    "flow-input": ("📥 Input Stage", "📥 입력 단계"),
    "flow-embedding": ("🔀 Embedding Stage", "🔀 임베딩 단계"),
    "flow-blocks": ("🔄 Blocks", "🔄 블록"),
    "flow-head": ("🎯 Output Stage", "🎯 출력 단계"),
    "flow-output": ("📤 Output", "📤 출력"),
    "flow-shape": ("shape", "형태"),
    "flow-parameters": ("parameters", "파라미터"),
    "flow-next": ("to the next", "다음 블록으로"),
    "flow-each-next": (", each to the next", ", 각각 다음으로"),
    "flow-each": ("each of {name}", "{name} 각각"),
    "flow-tried": ("{line} (also ran with {sizes})", "{line} ({sizes}(으)로도 실행함)"),
    "flow-and": (" and ", ", "),
    "flow-tensors": (
        "[name]: a parameter or buffer that operators read themselves",
        "[이름]: 연산이 직접 읽는 파라미터 또는 버퍼",
    ),
    # memory
    "memory": ("💾 Memory Estimate", "💾 메모리 추정"),
    "model-memory": ("📊 Model Memory (per model)", "📊 모델 메모리 (모델당)"),
    "parameters": ("Parameters", "파라미터"),
    "gradients": ("Gradients", "그래디언트"),
    "optimizer": ("Optimizer States", "옵티마이저 상태"),
    "total-model": ("Total Model", "모델 합계"),
    "batch-memory": ("📦 Batch Memory (batch_size={n})", "📦 배치 메모리 (batch_size={n})"),
    "batch-memory-given": ("📦 Batch Memory (inputs as given)", "📦 배치 메모리 (입력 그대로)"),
    "shared": ("Shared by Inputs", "입력 간 공유"),
    "activations": ("Activations", "활성화 값"),
    "saved": ("measured: saved for backward", "측정값: 역전파를 위해 저장된 텐서"),
    "total-batch": ("Total Batch", "배치 합계"),
    "total-usage": ("💡 Total Estimated Usage", "💡 전체 추정 사용량"),
    "model": ("Model", "모델"),
    "batch": ("Batch", "배치"),
    "model-batch": ("Model + Batch", "모델 + 배치"),
    "model-buffers-batch": ("Model + Buffers + Batch", "모델 + 버퍼 + 배치"),
    "peak": ("Measured Peak", "측정된 최대치"),
    "peak-text": ("of live tensors, in {phase}", "{phase} 중, 살아 있는 텐서 기준"),
    "mixed": ("With Mixed Precision (AMP, {dtype})", "혼합 정밀도 적용 시 (AMP, {dtype})"),
    "mixed-peak": ("Its Measured Peak", "이때 측정된 최대치"),
    "dominates": ("🐘 Largest at the Peak", "🐘 최대치에서 가장 큰 텐서"),
    "times": ("{n} × {size}", "{n} × {size}"),
    "excludes": ("Not included", "포함되지 않음"),
    # where something is missing
    "needs-code": (
        "needs code that builds the model: --builder file.py::function or --config FILE",
        "모델을 만드는 코드가 필요합니다: --builder file.py::function 또는 --config FILE",
    ),
    "failed": ("unknown: {why}", "알 수 없음: {why}"),
    "batch-kept": (
        "of the inputs as given, since another batch size cannot be tried: {why}",
        "다른 배치 크기로는 실행할 수 없어 주어진 입력 그대로 측정했습니다: {why}",
    ),
    "notes": ("📝 Notes", "📝 참고"),
    **SETTINGS,
}

# What a training step excludes and what its moments are called, as the analyses say it.
_KOREAN = {
    "kernels' own scratch (calibration measures it)": "커널 자체의 작업 메모리",
    "the allocator's rounding and reserve": "할당자의 올림과 예약분",
    "the device's context": "장치 컨텍스트",
    "forward": "순전파",
    "loss": "손실 계산",
    "backward": "역전파",
    "recompute": "재계산",
    "optimizer": "옵티마이저 단계",
    "activations": "활성화 값",
    "temporaries": "임시 텐서",
    "inputs": "입력",
    "parameters": "파라미터",
    "buffers": "버퍼",
    "gradients": "그래디언트",
    "optimizer_state": "옵티마이저 상태",
    "scratch": "작업 메모리",
}


def words(language: str) -> Words:
    """The words of a language, by their keys."""
    place = LANGUAGES.index(language)
    return lambda key: _WORDS[key][place]


def flow_words(say: Words) -> dict[str, str]:
    """What the diagram of the flow says of its own, in the same language."""
    return {key.removeprefix("flow-"): say(key) for key in _WORDS if key.startswith("flow-")}


def said(language: str, text: str) -> str:
    """A term of the analyses in that language, or as it is where there is no other word for it."""
    return _KOREAN.get(text, text) if language == "ko" else text.replace("_", " ")
