"""The corpora's training models in PyTorch: data for them, and their forward passes on the weights of their files."""
import math
import os

import numpy as np

BATCH = 64
MODELS = {"mlp": "mlp_mnist", "cnn": "lenet_mnist", "lstm": "lstm_mnist", "gpt": "gpt_char",
          "resnet18": "resnet18_train"}
# Of gradient descent: rates with which each learns.
RATES = {"mlp": 0.1, "cnn": 0.05, "lstm": 0.5, "gpt": 0.1, "resnet18": 0.001, "encoder": 0.1}


def path_of(model, corpora):
    return os.path.join(corpora, "training-models", MODELS[model] + ".onnx")


# ---- data

def idx(path):
    with open(path, "rb") as file:
        data = file.read()
    rank = data[3]
    dims = [int.from_bytes(data[4 + 4 * i:8 + 4 * i], "big") for i in range(rank)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(dims)


def text_of(corpora):
    """The text as samples of 64 characters, and the characters that follow each."""
    with open(os.path.join(corpora, "text-iris/tinyshakespeare.txt")) as file:
        text = file.read()
    code = {c: i for i, c in enumerate(sorted(set(text)))}
    ids = np.array([code[c] for c in text], np.int64)
    samples = (len(ids) - 1) // 64
    return ids[:samples * 64].reshape(-1, 64), ids[1:samples * 64 + 1].reshape(-1, 64)


def split_text(corpora, steps):
    """(inputs, labels) of `steps` batches from the first nine tenths, shuffled, and of the last tenth."""
    inputs, labels = text_of(corpora)
    first = len(inputs) * 9 // 10
    rows = np.concatenate([np.random.default_rng(epoch).permutation(first)
                           for epoch in range(steps * BATCH // first + 1)])[:steps * BATCH]
    return (inputs[rows], labels[rows]), (inputs[first:], labels[first:])


def data_of(model, corpora, steps, batch=BATCH):
    """The input's name, inputs and labels: all samples of `steps` batches, in order."""
    count = steps * batch
    if model == "gpt":
        inputs, labels = text_of(corpora)
        rows = np.arange(count) % len(inputs)
        return "idx", inputs[rows], labels[rows]
    if model == "resnet18":
        raw = np.fromfile(os.path.join(corpora, "cifar10-subset/train.bin"), np.uint8).reshape(-1, 3073)
        raw = raw[np.arange(count) % len(raw)]
        return "x", raw[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255, raw[:, 0].astype(np.int64)
    images = idx(os.path.join(corpora, "mnist/train-images-idx3-ubyte"))[:count]
    labels = idx(os.path.join(corpora, "mnist/train-labels-idx1-ubyte"))[:count].astype(np.int64)
    shape = {"mlp": (-1, 784), "cnn": (-1, 1, 28, 28), "lstm": (-1, 28, 28), "encoder": (-1, 28, 28)}[model]
    return "x", images.reshape(shape).astype(np.float32) / 255, labels


# ---- forward passes

def forward_of(model, w, torch):
    """The forward pass as a function of the inputs; `w` are the file's initializers by name."""
    F = torch.nn.functional

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def mlp(x):
        return linear(F.relu(linear(F.relu(linear(x, "fc1")), "fc2")), "fc3")

    def cnn(x):
        x = F.max_pool2d(F.relu(F.conv2d(x, w["conv1.weight"], w["conv1.bias"], padding=2)), 2)
        x = F.max_pool2d(F.relu(F.conv2d(x, w["conv2.weight"], w["conv2.bias"])), 2)
        return linear(F.relu(linear(F.relu(linear(x.flatten(1), "fc1")), "fc2")), "fc3")

    def lstm(x):
        order = [0, 2, 3, 1]  # ONNX: i, o, f, c; PyTorch: i, f, c, o

        def gates(t):
            return torch.cat([t.chunk(4, 0)[i] for i in order], 0)

        weights = [gates(w["lstm.W"][0]), gates(w["lstm.R"][0]), gates(w["lstm.B"][0][:256]), gates(w["lstm.B"][0][256:])]
        zero = x.new_zeros(1, x.shape[0], 64)
        out = torch.lstm(x.transpose(0, 1), (zero, zero), weights, True, 1, 0.0, True, False, False)
        return linear(out[1][0], "fc")

    others = {"gpt": lambda: gpt_of(w, torch), "resnet18": lambda: resnet_of(w, torch)}
    return others[model]() if model in others else {"mlp": mlp, "cnn": cnn, "lstm": lstm}[model]


def gpt_of(w, torch):
    F = torch.nn.functional

    def dense(x, name):
        return torch.addmm(w[name + ".bias"], x.reshape(-1, x.shape[-1]), w[name + ".weight"]).view(*x.shape[:-1], -1)

    def norm(x, name):
        return F.layer_norm(x, (x.shape[-1],), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def gpt(ids):
        n, t = ids.shape
        x = F.embedding(ids, w["wte"]) + w["wpe"][:t]
        mask = torch.full((t, t), -1e9, dtype=x.dtype).triu(1)
        for layer in range(4):
            p = "h%d." % layer
            q, k, v = [a.view(n, t, 4, 32).transpose(1, 2) for a in dense(norm(x, p + "ln1"), p + "attn.qkv").chunk(3, -1)]
            scores = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(32) + mask, -1)
            x = x + dense((scores @ v).transpose(1, 2).reshape(n, t, 128), p + "attn.proj")
            x = x + dense(F.gelu(dense(norm(x, p + "ln2"), p + "mlp.fc")), p + "mlp.proj")
        return norm(x, "lnf") @ w["wte"].t()

    return gpt


def resnet_of(w, torch):
    F = torch.nn.functional

    def norm(x, name):
        return F.batch_norm(x, w[name + ".running_mean"], w[name + ".running_var"], w[name + ".weight"],
                            w[name + ".bias"], True, 0.1, 1e-5)

    def resnet(x):
        h = F.relu(norm(F.conv2d(x, w["stem.weight"], padding=1), "stem.bn"))
        for stage in range(4):
            for block in range(2):
                n = "layer%d.%d" % (stage + 1, block)
                stride = 2 if block == 0 and stage > 0 else 1
                y = F.relu(norm(F.conv2d(h, w[n + ".conv1.weight"], stride=stride, padding=1), n + ".bn1"))
                y = norm(F.conv2d(y, w[n + ".conv2.weight"], padding=1), n + ".bn2")
                if n + ".down.weight" in w:
                    h = norm(F.conv2d(h, w[n + ".down.weight"], stride=stride), n + ".down.bn")
                h = F.relu(y + h)
        return F.linear(h.mean((2, 3)), w["fc.weight"], w["fc.bias"])

    return resnet


def encoder(torch):
    """28 rows as tokens through two of PyTorch's own layers of attention: always with the same weights."""
    torch.manual_seed(7)
    torch.backends.mha.set_fastpath_enabled(False)

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Linear(28, 64)
            self.positions = torch.nn.Parameter(0.1 * torch.randn(28, 64))
            layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, activation="gelu", batch_first=True,
                                                     norm_first=True)
            self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = torch.nn.Linear(64, 10)

        def forward(self, x):
            return self.head(self.layers(self.embed(x) + self.positions).mean(1))

    model = Encoder()
    with torch.no_grad():  # the layers begin as copies of one
        for parameter in model.layers.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model
