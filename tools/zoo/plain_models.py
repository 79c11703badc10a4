"""Models as people write them by hand."""
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from registry import MODELS, SAMPLES, Example, classes, images, tokens

VOCABULARY = 64
LENGTH = 12
WIDTH = 32
HEADS = 4


def language(module: nn.Module, **more) -> Example:
    """A model that predicts a token at each position."""
    more.setdefault("transformer", True)
    return Example(module, {"ids": tokens(VOCABULARY, LENGTH)}, classes(VOCABULARY, LENGTH), learning_rate=0.1, **more)


def series(module: nn.Module, features: int = 6, **more) -> Example:
    return Example(module, {"x": torch.randn(SAMPLES, LENGTH, features)}, classes(5), learning_rate=0.1, **more)


# ---- layers in a row

@MODELS.add
def mlp() -> Example:
    module = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.Tanh(),
                           nn.Linear(32, 5))
    return Example(module, {"x": torch.randn(SAMPLES, 20)}, classes(5), learning_rate=0.1)


@MODELS.add
def regression() -> Example:
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 1))
    return Example(module, {"x": torch.randn(SAMPLES, 8)}, torch.randn(SAMPLES, 1), loss="mse")


@MODELS.add
def mlp_bn1d() -> Example:
    module = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 24), nn.BatchNorm1d(24),
                           nn.ReLU(), nn.Linear(24, 5))
    return Example(module, {"x": torch.randn(SAMPLES, 20)}, classes(5), forms=("preserve",))


@MODELS.add
def prelu_net() -> Example:
    module = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.PReLU(8), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.PReLU(),
                           nn.Flatten(), nn.Linear(8 * 36, 10))
    return Example(module, {"x": images(1, 16)}, classes())


@MODELS.add
def weight_norm() -> Example:
    module = nn.Sequential(parametrizations.weight_norm(nn.Conv1d(4, 8, 3, padding=1)), nn.ReLU(), nn.Flatten(),
                           parametrizations.weight_norm(nn.Linear(8 * LENGTH, 5)))
    return Example(module, {"x": torch.randn(SAMPLES, 4, LENGTH)}, classes(5))


# ---- convolutions

@MODELS.add
def cnn_bn() -> Example:
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                           nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                           nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return Example(module, {"x": images(3, 16)}, classes(), forms=("preserve", "raw"))


@MODELS.add
def cnn_gn() -> Example:
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(4, 8), nn.ReLU(), nn.MaxPool2d(2),
                           nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(2, 16), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
                           nn.Flatten(), nn.Linear(16, 10))
    return Example(module, {"x": images(3, 16)}, classes(), learning_rate=0.1, forms=("raw",))


@MODELS.add
def cnn_in() -> Example:
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.InstanceNorm2d(8, affine=True), nn.ReLU(),
                           nn.Conv2d(8, 8, 3, stride=2), nn.InstanceNorm2d(8), nn.ReLU(), nn.Flatten(),
                           nn.Linear(8 * 49, 10))
    return Example(module, {"x": images(3, 16)}, classes())


class SqueezeExcitation(nn.Module):
    """A block of depthwise convolution whose channels are weighted by their means."""

    def __init__(self, channels: int):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.down = nn.Conv2d(channels, channels // 4, 1)
        self.up = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.hardswish(self.norm(self.depthwise(x)))
        scale = F.hardsigmoid(self.up(F.relu(self.down(y.mean((2, 3), keepdim=True)))))
        return x + y * scale


@MODELS.add
def squeeze_excitation() -> Example:
    module = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), SqueezeExcitation(16), SqueezeExcitation(16),
                           nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return Example(module, {"x": images(3, 16)}, classes(), forms=("preserve",))


class Normalized(nn.Module):
    """Images are brought to mean 0 inside the model, by buffers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1))
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
        self.head = nn.Linear(8 * 25, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features((x - self.mean) / self.deviation).flatten(1))


@MODELS.add
def image_statistics() -> Example:
    return Example(Normalized(), {"x": torch.rand(SAMPLES, 3, 16, 16)}, classes())


@MODELS.add
def frozen_stem() -> Example:
    module = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten(),
                           nn.Linear(8 * 25, 10))
    module[0].requires_grad_(False)
    return Example(module, {"x": images(3, 16)}, classes())


@MODELS.add
def gan_generator() -> Example:
    module = nn.Sequential(nn.Unflatten(1, (16, 1, 1)), nn.ConvTranspose2d(16, 16, 4, bias=False), nn.BatchNorm2d(16),
                           nn.ReLU(), nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                           nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh())
    return Example(module, {"z": torch.randn(SAMPLES, 16)}, torch.randn(SAMPLES, 3, 16, 16).tanh(), loss="mse",
                   learning_rate=0.1, forms=("preserve",))


@MODELS.add
def gan_discriminator() -> Example:
    module = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 4, 2, 1),
                           nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(16 * 16, 2))
    return Example(module, {"x": images(3, 16)}, classes(2))


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = self.block(3, 8)
        self.second = self.block(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.third = self.block(16, 8)
        self.head = nn.Conv2d(8, 4, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x)
        second = self.second(F.max_pool2d(first, 2))
        return self.head(self.third(torch.cat([self.up(second), first], 1)))


@MODELS.add
def unet() -> Example:
    return Example(Unet(), {"x": images(3, 16)}, classes(4, 16, 16), class_axis=1, forms=("preserve",))


class Upsampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Conv2d(1, 8, 3, padding=1)
        self.outer = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.interpolate(F.relu(self.inner(x)), scale_factor=2.0, mode="nearest")
        return self.outer(y) + F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


@MODELS.add
def super_resolution() -> Example:
    return Example(Upsampler(), {"x": images(1, 8)}, torch.randn(SAMPLES, 1, 16, 16), loss="mse", learning_rate=0.1)


# ---- codes

@MODELS.add
def autoencoder() -> Example:
    module = nn.Sequential(nn.Linear(20, 12), nn.ELU(), nn.Linear(12, 4), nn.Linear(4, 12), nn.ELU(), nn.Linear(12, 20))
    x = torch.randn(SAMPLES, 20)
    return Example(module, {"x": x}, x.clone(), loss="mse", learning_rate=0.1)


class TiedAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 20) * 0.2)
        self.bias_in = nn.Parameter(torch.zeros(6))
        self.bias_out = nn.Parameter(torch.zeros(20))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(torch.tanh(F.linear(x, self.weight, self.bias_in)), self.weight.t(), self.bias_out)


@MODELS.add
def tied_autoencoder() -> Example:
    x = torch.randn(SAMPLES, 20)
    return Example(TiedAutoencoder(), {"x": x}, x.clone(), loss="mse", learning_rate=0.1, forms=("raw",))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return F.cosine_similarity(self.tower(left), self.tower(right), dim=1)


@MODELS.add
def siamese() -> Example:
    return Example(Siamese(), {"left": torch.randn(SAMPLES, 10), "right": torch.randn(SAMPLES, 10)},
                   torch.rand(SAMPLES) * 2 - 1, loss="mse", learning_rate=0.1)


# ---- recommendation

class Dlrm(nn.Module):
    """Bags of sparse features beside dense ones (Naumov et al., 2019)."""

    def __init__(self, offsets: bool):
        super().__init__()
        self.offsets = offsets
        self.bags = nn.ModuleList(nn.EmbeddingBag(30 + 7 * i, 8, mode=mode) for i, mode in enumerate(["sum", "mean"]))
        self.bottom = nn.Linear(6, 8)
        self.top = nn.Sequential(nn.Linear(11, 16), nn.ReLU(), nn.Linear(16, 2))

    def bag(self, index: int, ids: torch.Tensor) -> torch.Tensor:
        if not self.offsets:
            return self.bags[index](ids)
        starts = torch.arange(0, ids.shape[0] * ids.shape[1], ids.shape[1])
        return self.bags[index](ids.reshape(-1), starts)

    def forward(self, dense: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        vectors = torch.stack([self.bottom(dense), self.bag(0, first), self.bag(1, second)], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        pairs = torch.stack([products[:, 0, 1], products[:, 0, 2], products[:, 1, 2]], 1)
        return self.top(torch.cat([vectors[:, 0], pairs], 1))


def recommendation(offsets: bool) -> Example:
    inputs = {"dense": torch.randn(SAMPLES, 6), "first": torch.randint(0, 30, (SAMPLES, 4)),
              "second": torch.randint(0, 37, (SAMPLES, 3))}
    return Example(Dlrm(offsets), inputs, classes(2), learning_rate=0.1, forms=("raw",))


@MODELS.add
def dlrm() -> Example:
    return recommendation(offsets=False)


@MODELS.add
def dlrm_offsets() -> Example:
    return recommendation(offsets=True)


# ---- recurrences

class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module, width: int):
        super().__init__()
        self.layer = layer
        self.head = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0][:, -1])


@MODELS.add
def lstm() -> Example:
    return series(Recurrent(nn.LSTM(6, 12, num_layers=2, batch_first=True), 12))


@MODELS.add
def bilstm() -> Example:
    return series(Recurrent(nn.LSTM(6, 8, batch_first=True, bidirectional=True), 16))


@MODELS.add
def gru() -> Example:
    return series(Recurrent(nn.GRU(6, 12, batch_first=True), 12))


class TextConvolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.convolutions = nn.ModuleList(nn.Conv1d(16, 8, k) for k in (2, 3, 4))
        self.head = nn.Linear(24, 5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids).transpose(1, 2)
        return self.head(torch.cat([F.relu(c(x)).amax(2) for c in self.convolutions], 1))


@MODELS.add
def text_cnn() -> Example:
    return Example(TextConvolutions(), {"ids": tokens(VOCABULARY, LENGTH)}, classes(5), learning_rate=0.1)


# ---- attention

class Block(nn.Module):
    """A layer of a decoder, with its mask as a buffer."""

    def __init__(self, low: float = -math.inf, packed: str = "split"):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.packed = packed
        self.register_buffer("mask", torch.full((LENGTH, LENGTH), low).triu(1)[None, None])

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        packed = self.qkv(x)
        parts = packed.split(WIDTH, 2) if self.packed == "split" else packed.chunk(3, -1)
        q, k, v = (self.heads(part) for part in parts)
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS) + self.mask
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, positions: str, blocks: list[nn.Module], tied: bool = False):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        if positions == "learned":
            self.positions = nn.Parameter(torch.randn(1, LENGTH, WIDTH) * 0.02)
        elif positions == "sinusoidal":
            self.register_buffer("positions", self.sinusoids())
        else:
            self.positions = None
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=not tied)
        if tied:
            self.head.weight = self.embedding.weight

    @staticmethod
    def sinusoids() -> torch.Tensor:
        angles = torch.arange(LENGTH)[:, None] / 10000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
        return torch.stack([angles.sin(), angles.cos()], 2).view(1, LENGTH, WIDTH)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        if self.positions is not None:
            x = x + self.positions
        return self.head(self.norm(self.blocks(x)))


@MODELS.add
def causal_mask() -> Example:
    return language(Decoder("learned", [Block(), Block()]), forms=("raw",))


@MODELS.add
def causal_mask_1e9() -> Example:
    return language(Decoder("learned", [Block(-1e9), Block(-1e9)]))


@MODELS.add
def chunk_split() -> Example:
    return language(Decoder("learned", [Block(packed="split"), Block(packed="chunk")], tied=True), forms=("raw",))


@MODELS.add
def sinusoidal() -> Example:
    return language(Decoder("sinusoidal", [Block()]))


class RootMeanSquare(nn.Module):
    """RMSNorm as most models write it."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class RotaryBlock(nn.Module):
    """Grouped-query attention with rotary positions, RMSNorm and SwiGLU, by hand."""

    def __init__(self, groups: int = 2):
        super().__init__()
        size = WIDTH // HEADS
        self.groups = groups
        self.norm1 = RootMeanSquare(WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, groups * size, bias=False)
        self.value = nn.Linear(WIDTH, groups * size, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm2 = RootMeanSquare(WIDTH)
        self.gate = nn.Linear(WIDTH, 48, bias=False)
        self.up = nn.Linear(WIDTH, 48, bias=False)
        self.down = nn.Linear(48, WIDTH, bias=False)
        angles = torch.outer(torch.arange(LENGTH).float(), 10000 ** (-torch.arange(0, size, 2) / size)).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def heads(self, x: torch.Tensor, count: int) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], count, WIDTH // HEADS).transpose(1, 2)

    def rotate(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, -1)
        return x * self.cosine + torch.cat([-right, left], -1) * self.sine

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q = self.rotate(self.heads(self.query(y), HEADS))
        k = self.rotate(self.heads(self.key(y), self.groups)).repeat_interleave(HEADS // self.groups, 1)
        v = self.heads(self.value(y), self.groups).repeat_interleave(HEADS // self.groups, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@MODELS.add
def rope_decoder() -> Example:
    return language(Decoder("none", [RotaryBlock(), RotaryBlock()]), forms=("raw",))


class Encoder(nn.Module):
    def __init__(self, causal: bool):
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True, activation="gelu")
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH) if causal else None
        self.register_buffer("mask", mask)
        self.register_buffer("order", torch.arange(LENGTH), persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids) + self.positions(self.order)
        return self.head(self.encoder(x, mask=self.mask, is_causal=False))


@MODELS.add
def transformer_encoder() -> Example:
    return language(Encoder(causal=False))


@MODELS.add
def transformer_causal() -> Example:
    return language(Encoder(causal=True), forms=("raw",))


class Mixer(nn.Module):
    """Patches and channels mixed in turns, without attention (Tolstikhin et al., 2021)."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.tokens = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))
        self.norm2 = nn.LayerNorm(WIDTH)
        self.channels = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return self.head((x + self.channels(self.norm2(x))).mean(1))


@MODELS.add
def mixer() -> Example:
    return Example(Mixer(), {"x": images(3, 16)}, classes(), learning_rate=0.1)


class Experts(nn.Module):
    """Two of four experts, by a gate whose other weights are masked."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 16)) for _ in range(4))
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.gate(x)
        kept = scores >= scores.topk(2, -1).values[:, -1:]
        weights = scores.masked_fill(~kept, -math.inf).softmax(-1)
        y = torch.stack([expert(x) for expert in self.experts], 1)
        return self.head((weights[:, :, None] * y).sum(1))


@MODELS.add
def experts() -> Example:
    return Example(Experts(), {"x": torch.randn(SAMPLES, 16)}, classes(5), learning_rate=0.1)
