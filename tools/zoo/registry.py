"""What a model of the zoo is, and the list that the other files fill."""
import importlib
from dataclasses import dataclass, field
from typing import Callable

import torch
from torch import nn

BATCH = 8
STEPS = 5
SAMPLES = BATCH * STEPS
FAMILIES = ("plain_models", "vision_models", "language_models")


@dataclass
class Example:
    """A module with what trains it. Axis 0 of inputs and labels has the SAMPLES samples, in order."""
    module: nn.Module
    inputs: dict[str, torch.Tensor]  # in the order of forward's arguments
    labels: torch.Tensor
    loss: str = "softmax_cross_entropy"  # or mse: the mean over all elements
    class_axis: int = -1
    learning_rate: float = 0.01
    transformer: bool = False
    # Other exports that matter: "raw" (dynamo, optimize=False), "preserve" (legacy, in inference mode, nothing folded).
    forms: tuple[str, ...] = ()

    def batch(self, step: int) -> tuple[torch.Tensor, ...]:
        return tuple(x[step * BATCH:(step + 1) * BATCH] for x in self.inputs.values())

    def labels_of(self, step: int) -> torch.Tensor:
        return self.labels[step * BATCH:(step + 1) * BATCH]


@dataclass
class Registry:
    makers: dict[str, Callable[[], Example]] = field(default_factory=dict)
    large: dict[str, Callable[[], Example]] = field(default_factory=dict)  # only when named

    def add(self, maker: Callable[[], Example]) -> Callable[[], Example]:
        assert maker.__name__ not in self.makers, maker.__name__
        self.makers[maker.__name__] = maker
        return maker

    def make(self, name: str) -> Example:
        """The same weights and data each time. Nothing in it is random in training: no dropout."""
        torch.manual_seed(sum(name.encode()))
        example = {**self.makers, **self.large}[name]()
        for module in example.module.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.p = 0.0
        return example


MODELS = Registry()


def load() -> Registry:
    """All models; imports their families, and so PyTorch's packages."""
    for family in FAMILIES:
        importlib.import_module(family)
    return MODELS


def images(channels: int = 3, size: int = 32) -> torch.Tensor:
    return torch.randn(SAMPLES, channels, size, size)


def classes(count: int = 10, *shape: int) -> torch.Tensor:
    return torch.randint(0, count, (SAMPLES, *shape))


def tokens(vocabulary: int, length: int) -> torch.Tensor:
    """Without the numbers of special tokens: 0, 1, 2 and the last."""
    return torch.randint(3, vocabulary - 1, (SAMPLES, length))
