"""What a module is and does by itself: parameters, ties, what exporters fold, its losses in training."""
import copy
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.utils import fusion, parametrize

from registry import STEPS, Example


def parameters_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """What the author trains; a tied parameter once, under its first name."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def ties_of(module: nn.Module) -> list[list[str]]:
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [group for group in names.values() if len(group) > 1]


def output_of(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    output = module(*inputs)
    return output[0] if isinstance(output, tuple) else output


def loss_of(example: Example, output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean over all labels, in the type of the output."""
    if example.loss == "mse":
        return nn.functional.mse_loss(output, labels.to(output.dtype))
    return nn.functional.cross_entropy(output.movedim(example.class_axis, -1).flatten(0, -2), labels.flatten())


def used_parameters(example: Example, module: nn.Module) -> set[str]:
    """Names of the parameters that the loss depends on; exporters leave the others out."""
    module = copy.deepcopy(module)
    loss_of(example, output_of(module, example.batch(0)), example.labels_of(0)).backward()
    return {name for name, p in parameters_of(module).items() if p.grad is not None}


@dataclass
class Training:
    losses: list[float]  # before each step
    output: torch.Tensor  # for the first batch, in inference mode, after the last step


def keep_population_variance(module: nn.Module) -> None:
    """Running variances move as ONNX defines it, in place: by the variance of the population. PyTorch divides the
    sum of squares by n - 1. Of a batch of 8 with one number per sample and channel, that is a seventh more."""
    before: dict[nn.Module, torch.Tensor] = {}

    def remember(layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        before[layer] = layer.running_var.clone()

    def correct(layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        if layer.training:
            axes = [axis for axis in range(inputs[0].dim()) if axis != 1]
            variance = inputs[0].detach().var(axes, correction=0)
            layer.running_var = torch.lerp(before[layer], variance, layer.momentum)  # autograd keeps the old one

    for layer in module.modules():
        if isinstance(layer, NORMALIZATIONS) and layer.track_running_stats:
            layer.register_forward_pre_hook(remember)
            layer.register_forward_hook(correct)


def train(example: Example, module: nn.Module, dtype: torch.dtype, training: bool) -> Training:
    """STEPS of gradient descent on a copy of the module; `training`: with statistics of the batch."""
    def cast(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(t.to(dtype) if t.is_floating_point() else t for t in tensors)

    module = copy.deepcopy(module).to(dtype).train(training)
    keep_population_variance(module)
    optimizer = torch.optim.SGD(parameters_of(module).values(), lr=example.learning_rate)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(example, output_of(module, cast(example.batch(step))), example.labels_of(step))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        return Training(losses, output_of(module.eval(), cast(example.batch(0))))


# ---- what exporters fold

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d)
NORMALIZATIONS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def has_batch_norm(module: nn.Module) -> bool:
    return any(isinstance(m, NORMALIZATIONS) for m in module.modules())


def normalized_layers(example: Example) -> list[tuple[str, str]]:
    """Pairs of names: a linear layer, and the BatchNormalization that reads its output."""
    makers: dict[int, str] = {}
    kept: list[torch.Tensor] = []
    pairs: list[tuple[str, str]] = []

    def hook(name: str):
        def record(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            if isinstance(module, NORMALIZATIONS):
                if id(inputs[0]) in makers:
                    pairs.append((makers[id(inputs[0])], name))
            else:
                makers[id(output)] = name
                kept.append(output)
        return record

    module = copy.deepcopy(example.module).eval()
    for name, layer in module.named_modules():
        if isinstance(layer, CONVOLUTIONS + TRANSPOSED + NORMALIZATIONS + (nn.Linear,)):
            layer.register_forward_hook(hook(name))
    with torch.no_grad():
        output_of(module, example.batch(0))
    return pairs


def fold(module: nn.Module, linear: str, normalization: str) -> None:
    """Moves a BatchNormalization in inference mode into the layer before it, in place."""
    layer, norm = module.get_submodule(linear), module.get_submodule(normalization)
    if isinstance(layer, nn.Linear):
        folded = fusion.fuse_linear_bn_eval(layer.eval(), norm.eval())
    else:
        folded = fusion.fuse_conv_bn_eval(layer.eval(), norm.eval(), transpose=isinstance(layer, TRANSPOSED))
    folded.bias.requires_grad_(True)  # made by the folding where the layer had none: the normalization's
    for name, replacement in ((linear, folded), (normalization, nn.Identity())):
        parent, _, child = name.rpartition(".")
        setattr(module.get_submodule(parent), child, replacement)


def without_parametrizations(module: nn.Module) -> nn.Module:
    """A copy whose normalized weights are plain parameters with the same values."""
    module = copy.deepcopy(module)
    for layer in list(module.modules()):
        if parametrize.is_parametrized(layer):  # copies share the class that the removal changes
            shared = type(layer)
            layer.__class__ = type(shared.__name__, shared.__bases__, dict(shared.__dict__))
        for name in list(getattr(layer, "parametrizations", {})):
            parametrize.remove_parametrizations(layer, name, leave_parametrized=True)
            getattr(layer, name).requires_grad_(True)
    return module
