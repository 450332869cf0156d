"""Everyday models: small networks of well-known kinds as people write them, each at one size and in one type.

A case is `everyday/NAME`, such as everyday/resnet18. The zoo's models (zoo.py) each stress one form; these are whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from . import everyday_images as i
from . import everyday_sequences as s
from . import everyday_tables as t
from .zoo_models import Mixer, mlp, repeated

PREFIX = "everyday/"
BF16, F32 = torch.bfloat16, torch.float32
Input = tuple[int, ...] | Callable[[], Tensor]  # the shape of normal values of the model's type, or what makes it


@dataclass(frozen=True)
class Model:
    """What it is; the module; its inputs; the type of its weights and of the inputs that are named by shapes."""

    about: str
    make: Callable[[], nn.Module]
    inputs: tuple[Input, ...]
    kind: torch.dtype = BF16


def _indices(end: int, *shape: int) -> Callable[[], Tensor]:
    return partial(torch.randint, 0, end, shape)


def _mask() -> Tensor:
    return torch.rand(16, 64) > 0.05


def _points() -> Tensor:
    return torch.randn(512, 32, 3) * 0.3


def _depths() -> Tensor:
    return torch.rand(512, 32).sort(1)[0]


def _inception() -> nn.Module:
    return nn.Sequential(i.Inception(128), i.Inception(224))


def _iris() -> nn.Module:
    return nn.Sequential(mlp(4, 16, 3), nn.Softmax(-1))


def _gru() -> nn.Module:
    return s.Recurrent(nn.GRU(64, 128, num_layers=2, batch_first=True), 128, 8, last=True)


def _bilstm() -> nn.Module:
    return s.Recurrent(nn.LSTM(100, 64, bidirectional=True, batch_first=True), 128, 9)


def _pinn() -> nn.Module:
    return mlp(3, *[64] * 6, 1, activation=nn.Tanh)


# fmt: off
MODELS: dict[str, Model] = {
    "resnet18": Model("a classifier, 32 images", i.ResNet18, ((32, 3, 224, 224),)),
    "resnet18-one": Model("the same, one image", i.ResNet18, ((1, 3, 224, 224),)),
    "mobilenet": Model("MobileNetV2, shortened", i.mobilenet, ((32, 3, 224, 224),)),
    "mbconv": Model("EfficientNet's block", i.mbconv, ((32, 40, 28, 28),)),
    "convnext": Model("three ConvNeXt blocks", lambda: repeated(3, i.ConvNeXtBlock, 192), ((16, 192, 28, 28),)),
    "resnext": Model("a bottleneck of 32 groups", i.resnext, ((16, 256, 28, 28),)),
    "inception": Model("two blocks of four branches", _inception, ((16, 128, 28, 28),)),
    "densenet": Model("a block of four layers", lambda: i.DenseBlock(64), ((32, 64, 28, 28),)),
    "vgg": Model("six convolutions, 64x64", i.vgg, ((32, 3, 64, 64),)),
    "shufflenet": Model("two ShuffleNetV2 blocks", lambda: repeated(2, i.Shuffle, 116), ((16, 116, 28, 28),)),
    "sagan": Model("attention among pixels", lambda: i.ImageAttention(128), ((8, 128, 16, 16),)),
    "unet": Model("a diffusion model's, with time", i.DiffusionUnet, ((8, 4, 64, 64), (8, 64))),
    "conv-autoencoder": Model("transposed convolutions", i.autoencoder, ((32, 3, 64, 64),)),
    "espcn": Model("super-resolution, pixel shuffle", i.SuperResolution, ((4, 1, 96, 96),)),
    "dqn": Model("an Atari player, f32", i.dqn, ((32, 4, 84, 84),), F32),
    "siamese-mnist": Model("two images, two measures, f32", i.Siamese, ((64, 1, 28, 28), (64, 1, 28, 28)), F32),
    "vit-s": Model("ViT-S, six blocks", s.VisionTransformer, ((16, 3, 224, 224),)),
    "swin": Model("a block of shifted windows", lambda: s.ShiftedWindows(96, 3), ((16, 56, 56, 96),)),
    "gpt2": Model("GPT-2, four blocks", s.Gpt, (_indices(8192, 4, 512),)),
    "bert": Model("torch's encoder, four layers", s.bert, ((8, 128, 768),)),
    "decoder-layer": Model("torch's decoder layer", s.decoder_layer, ((16, 64, 512), (16, 128, 512))),
    "llama": Model("two layers, grouped keys", s.Llama, ((2, 512, 1024), (512, 64), (512, 64))),
    "t5-attention": Model("a bias by distance, masked", s.RelativeAttention, ((16, 64, 256), _mask)),
    "linear-attention": Model("no softmax, f32", lambda: s.LinearAttention(256, 4), ((8, 512, 256),), F32),
    "perceiver": Model("learnt queries, f32", lambda: s.Perceiver(128), ((32, 256, 128),), F32),
    "moe": Model("the two best of four experts", s.RoutedExperts, ((2048, 512),)),
    "mixer": Model("two MLP-mixer blocks", lambda: repeated(2, Mixer, 196, 256, 128), ((32, 196, 256),)),
    "gmlp": Model("a gate made over tokens", lambda: s.GatedMlp(256, 128), ((16, 128, 256),)),
    "lstm": Model("a tagger, 32 tokens", s.lstm_tagger, (_indices(5000, 64, 32),)),
    "gru": Model("two layers, the last step, f32", _gru, ((128, 20, 64),), F32),
    "bilstm": Model("both directions, f32", _bilstm, ((32, 16, 100),), F32),
    "wavenet": Model("four gated convolutions", lambda: s.WaveNet(64), ((8, 64, 8000),)),
    "conformer": Model("a depthwise convolution in time", lambda: s.ConformerConvolution(256), ((8, 400, 256),)),
    "ssm": Model("Mamba's layer as a loop, f32", lambda: s.StateSpace(128), ((16, 12, 128),), F32),
    "fno": Model("products with cosines, f32", s.FourierLayer, ((64, 128, 32),), F32),
    "iris": Model("150 flowers, f32", _iris, ((150, 4),), F32),
    "mlp": Model("784-512-512-10, dropout, f32", t.classifier, ((256, 784),), F32),
    "pinn": Model("seven layers, tanh, f32", _pinn, ((50_000, 3),), F32),
    "deepfm": Model("20 embeddings a row", t.DeepFM, (_indices(1000, 8192, 20),)),
    "dcn-v2": Model("deep & cross", lambda: t.DeepCross(416, 400), ((4096, 416),)),
    "ncf": Model("users and items, f32", t.NeuralFiltering, (_indices(5000, 16_384), _indices(3000, 16_384)), F32),
    "tabtransformer": Model("categories and numbers, f32", t.TabTransformer, (_indices(50, 1024, 10), (1024, 6)), F32),
    "clip-heads": Model("logits of all pairs", t.TwoTowers, ((1024, 384), (1024, 512))),
    "pointnet": Model("the largest of 1024 points", t.PointNet, ((32, 1024, 3),)),
    "nerf-render": Model("colours of rays, f32", t.Rays, (_points, _depths), F32),
    "vq": Model("the nearest of 256 codes, f32", t.Codebook, ((8192, 64),), F32),
}
# fmt: on


def names() -> tuple[str, ...]:
    """The cases, in the order of the table."""
    return tuple(PREFIX + name for name in MODELS)


def make(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """The model of a case, in eval mode, with random arguments. Raises KeyError for a name that is none."""
    model = MODELS[name.removeprefix(PREFIX)]
    args = tuple(torch.randn(one, dtype=model.kind) if isinstance(one, tuple) else one() for one in model.inputs)
    return model.make().to(model.kind).eval(), args
