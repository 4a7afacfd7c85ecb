"""Image classifiers with the parameter counts of their papers' usual implementations, 1000 classes.

==========  ===========  ==============================================================
name        parameters   source
==========  ===========  ==============================================================
resnet18    11 689 512   He et al., Deep Residual Learning, CVPR 2016
resnet50    25 557 032   the same; stride in the 3×3 convolution, as is usual today
vgg16       138 357 544  Simonyan and Zisserman, ICLR 2015, configuration D
vgg19       143 667 240  the same, configuration E
smallcnn    1 079 242    none: two buckets of gradients, for tests and tight CPUs
==========  ===========  ==============================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


class Residual(nn.Module):  # type: ignore[misc]  # mypy does not look into torch
    """``relu(body(x) + shortcut(x))``; the shortcut is a projection where shapes differ."""

    def __init__(self, body: nn.Module, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = body
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else _convolution(inputs, outputs, 1, stride)

    def forward(self, x: Any) -> Any:
        return nn.functional.relu(self.body(x) + self.shortcut(x))


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the image's size (but for the stride), and batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)
    )


def _basic(inputs: int, width: int, stride: int) -> tuple[nn.Module, int]:
    body = nn.Sequential(
        _convolution(inputs, width, 3, stride), nn.ReLU(inplace=True), _convolution(width, width, 3)
    )  # fmt: skip
    return Residual(body, inputs, width, stride), width


def _bottleneck(inputs: int, width: int, stride: int) -> tuple[nn.Module, int]:
    outputs = 4 * width
    body = nn.Sequential(
        _convolution(inputs, width, 1), nn.ReLU(inplace=True),
        _convolution(width, width, 3, stride), nn.ReLU(inplace=True),
        _convolution(width, outputs, 1),
    )  # fmt: skip
    return Residual(body, inputs, outputs, stride), outputs


def _resnet(block: Callable[[int, int, int], tuple[nn.Module, int]], depths: tuple[int, ...]) -> nn.Module:
    layers = [_convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    channels = 64
    for stage, depth in enumerate(depths):
        for index in range(depth):
            layer, channels = block(channels, 64 << stage, 2 if stage and index == 0 else 1)
            layers.append(layer)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def _vgg(depths: tuple[int, ...]) -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width, depth in zip((64, 128, 256, 512, 512), depths, strict=True):
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(),
        nn.Linear(512 * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(),
        nn.Linear(4096, 1000),
    )  # fmt: skip


def resnet18() -> nn.Module:
    return _resnet(_basic, (2, 2, 2, 2))


def resnet50() -> nn.Module:
    return _resnet(_bottleneck, (3, 4, 6, 3))


def vgg16() -> nn.Module:
    return _vgg((2, 2, 3, 3, 3))


def vgg19() -> nn.Module:
    return _vgg((2, 2, 4, 4, 4))


def smallcnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(1024, 1024), nn.ReLU(inplace=True), nn.Linear(1024, 10),
    )  # fmt: skip


MODELS: dict[str, Callable[[], nn.Module]] = {
    model.__name__: model for model in (resnet18, resnet50, vgg16, vgg19, smallcnn)
}
