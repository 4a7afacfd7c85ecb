"""Public dimensions of models, one TOML file each: ``workloads/models/NAME.toml``, or a custom file.

`testbed.traces.model_jobs` derives the computes and exchanges of a job from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from testbed import registry
from testbed.core import toml
from testbed.core.errors import RequestError, within
from testbed.core.input_files import MissingError, read_text
from testbed.core.text import decimal, did_you_mean, is_text, quoted, shown

LIBRARY = registry.folder("workloads", "models")
MOST_BYTES = 1 << 16  # of a file

Count = Annotated[int, msgspec.Meta(ge=0, le=10_000_000)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Layers = Annotated[int, msgspec.Meta(ge=0, le=4096)]
Precision = Literal["bf16", "fp16", "fp32"]


class Transformer(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind", tag="transformer"
):
    """A decoder of text, an encoder of images (``image``), or an encoder and a decoder (``encoder_layers``)."""

    title: str
    source: str = ""
    layers: Annotated[int, msgspec.Meta(ge=1, le=4096)]  # of the decoder, where there is an encoder too
    encoder_layers: Layers = 0
    hidden: Positive
    ffn: Positive  # width of the feed-forward network
    heads: Positive
    kv_heads: Count = 0  # of keys and values; 0: as many as heads
    head_size: Count = 0  # 0: hidden ÷ heads
    experts: Count = 0  # of each layer's feed-forward network; 0: a dense model
    experts_per_token: Count = 0
    vocabulary: Count = 0
    tied: bool = False  # the head shares the embedding's parameters
    positions: Count = 0  # learned, each a vector
    relative_positions: Count = 0  # buckets, of which each head has a bias in each stack of layers
    image: Count = 0  # pixels along one side of an image; 0: text
    patch: Count = 0
    classes: Count = 0  # of images
    gated: bool = False  # feed-forward networks have three matrices (SwiGLU)
    biases: bool = False
    norm: Literal["layer", "rms"] = "rms"  # parameters of a norm: two vectors, or one
    sequence: Count = 0  # tokens of a sample; of images as many as patches, and one
    micro_batch_size: Positive = 1
    gradients: Precision = "bf16"  # as they are exchanged

    @property
    def head_width(self) -> int:
        return self.head_size or self.hidden // self.heads

    @property
    def key_heads(self) -> int:
        return self.kv_heads or self.heads

    @property
    def tokens(self) -> int:
        """Return the tokens of a sample, as the model was trained."""
        return self.sequence or (self.image // self.patch) ** 2 + 1


class Recommender(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, tag_field="kind", tag="recommender"
):
    """Embedding tables spread over all ranks, and multi-layer perceptrons on each (DLRM)."""

    title: str
    source: str = ""
    dense_features: Positive
    bottom: Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1, max_length=64)]  # widths of the first perceptron
    top: Annotated[tuple[Positive, ...], msgspec.Meta(min_length=1, max_length=64)]
    tables: Positive
    rows: Annotated[int, msgspec.Meta(ge=1, le=10**13)]  # of all tables
    dimension: Positive  # of an embedding
    micro_batch_size: Positive  # samples of each rank
    gradients: Precision = "fp32"  # of the perceptrons


Model = Transformer | Recommender


def rounded(count: int) -> str:
    """A number of parameters, to three digits."""
    scale, word = (10**9, "billion") if count >= 10**9 else (10**6, "million")
    return f"{decimal(count / scale, 3)} {word}"


def names() -> list[str]:
    """The models that come with the testbed."""
    return sorted(path.stem for path in LIBRARY.glob("*.toml"))


def load(name: str) -> Model:
    """Return a model of the library by name, or of a file (``./mine.toml``). Raises `RequestError`."""
    if not is_text(name):
        raise RequestError(f"{quoted(name)} is not a name: use letters, digits, and . _ -", where="model")
    if not name.endswith(".toml") and name not in names():
        hint = did_you_mean(name, names(), f"There are {', '.join(names())}. Or name a file: ./mine.toml.")
        raise RequestError(f"unknown model {quoted(name)}. {hint}", where="model")
    path = Path(name) if name.endswith(".toml") else LIBRARY / f"{name}.toml"
    try:
        text = read_text(path, MOST_BYTES)
    except MissingError as error:
        raise RequestError(
            f"there is no file {shown(path, 200)}. The library has {', '.join(names())}", where="model"
        ) from error
    with within(shown(path, 200)):
        return _model(text)


def _model(text: str) -> Model:
    raw = toml.loads(text)
    raw.setdefault("kind", "transformer")
    try:
        model: Model = msgspec.convert(raw, Model)
    except (msgspec.ValidationError, RecursionError) as error:
        raise RequestError(f"{shown(error, 200)}. docs/reference/model-jobs.md lists the fields of a model") from error
    if not is_text(model.title) or not is_text(model.source):
        raise RequestError("is not a text", where="title")
    if isinstance(model, Transformer):
        _check(model)
    elif model.bottom[-1] != model.dimension:
        raise RequestError(
            f"ends with {model.bottom[-1]}, and dimension is {model.dimension}. Its output interacts with the embeddings. Make them equal",
            where="bottom",
        )
    return model


def _check(model: Transformer) -> None:
    """Raises `RequestError` where two fields contradict each other."""

    def wrong(where: str, what: str) -> RequestError:
        return RequestError(what, where=where)

    if not model.head_size and model.hidden % model.heads:
        raise wrong(
            "heads", f"{model.heads} does not divide hidden ({model.hidden}). Correct one of them, or give head_size"
        )
    if model.heads % model.key_heads:
        raise wrong("kv_heads", f"{model.kv_heads} does not divide heads ({model.heads}). Each serves as many heads")
    if bool(model.experts) != bool(model.experts_per_token):
        raise wrong("experts", "experts and experts_per_token belong together. Give both, or neither")
    if model.experts_per_token > model.experts:
        raise wrong("experts_per_token", f"{model.experts_per_token} is more than experts ({model.experts})")
    if bool(model.image) != bool(model.patch) or (model.patch and model.image % model.patch):
        raise wrong("patch", f"{model.patch} does not divide image ({model.image}). Give both, in pixels")
    if bool(model.image) == bool(model.vocabulary):
        raise wrong("vocabulary", "a model has a vocabulary (text) or an image size. Give one of them")
    if bool(model.image) != bool(model.classes):
        raise wrong("classes", "classes are of a model of images. Give image, patch and classes, or none of them")
    if model.image and (model.encoder_layers or model.tied or model.relative_positions):
        raise wrong("image", "a model of images has no encoder_layers, tied or relative_positions. Leave them out")
    if not model.image and not model.sequence:
        raise wrong("sequence", "is missing. Give the tokens of a sample")
