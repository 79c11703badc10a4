#!/usr/bin/env python3
"""Nine networks of the size that people run, as torch.onnx writes them, with random weights.

    exports.py NAME FILE.onnx

All are made for inference with a batch of one, and always with the same weights.
"""
import sys

IMAGE = {"input": (1, 3, 224, 224)}
TOKENS = {"ids": (1, 128)}
# Inputs by name. Tokens are below VOCABULARY.
NETWORKS = {"bert": TOKENS, "densenet": IMAGE, "efficientnet": IMAGE, "mobilenet_v3": IMAGE, "resnet50": IMAGE,
            "shufflenet": IMAGE, "squeezenet": IMAGE, "vgg19": IMAGE, "vit": IMAGE}
VOCABULARY = 30522


def inputs_of(name):
    """Random values for each input: always the same."""
    import numpy as np
    random = np.random.default_rng(7)
    result = {}
    for key, shape in NETWORKS[name].items():
        is_tokens = NETWORKS[name] is TOKENS
        result[key] = random.integers(0, VOCABULARY, shape) if is_tokens else random.standard_normal(shape, np.float32)
    return result


def bert():
    """Four layers of BERT-base: 768 wide, 12 heads, normalization behind each sum."""
    import torch
    from torch import nn

    class Bert(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(VOCABULARY, 768)
            self.positions = nn.Embedding(512, 768)
            self.norm = nn.LayerNorm(768, eps=1e-12)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation="gelu", batch_first=True)
                for _ in range(4))
            self.pooler = nn.Linear(768, 768)

        def forward(self, ids):
            x = self.norm(self.words(ids) + self.positions(torch.arange(ids.shape[1])))
            for layer in self.layers:
                x = layer(x)
            return x, torch.tanh(self.pooler(x[:, 0]))

    torch.backends.mha.set_fastpath_enabled(False)
    return Bert()


def network(name):
    from torchvision import models
    if name == "bert":
        return bert()
    makers = {"densenet": models.densenet121, "efficientnet": models.efficientnet_b0,
              "mobilenet_v3": models.mobilenet_v3_large, "resnet50": models.resnet50,
              "shufflenet": models.shufflenet_v2_x1_0, "squeezenet": models.squeezenet1_1, "vgg19": models.vgg19,
              "vit": models.vit_b_16}
    return makers[name](weights=None)


def main():
    import torch
    name, path = sys.argv[1:]
    torch.manual_seed(7)
    module = network(name).eval()
    example = tuple(torch.from_numpy(value) for value in inputs_of(name).values())
    torch.onnx.export(module, example, path, input_names=list(NETWORKS[name]), dynamo=True, external_data=False)


if __name__ == "__main__":
    main()
