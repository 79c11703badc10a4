"""Times training steps of PyTorch on this GPU, as a yardstick for tools/gpu_check.
A GPT (12 layers, 768 wide, 12 heads, sequence 1,024, 50,257 tokens) with AdamW, batch 8, and ResNet-50 with SGD, batch
64, where torchvision is there; bfloat16 first, for time may run out. Prints a line per model and way: samples per
second, median of 10 steps, and the peak of the memory that the allocator held.
"""
import statistics
import time
import torch
from torch import nn


class Gpt(nn.Module):
    def __init__(self, layers=12, width=768, heads=12, length=1024, tokens=50257):
        super().__init__()
        self.embed, self.place = nn.Embedding(tokens, width), nn.Embedding(length, width)
        block = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, tokens, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        y = self.blocks(self.embed(x) + self.place(places), mask=self.mask, is_causal=True)
        return self.head(y).flatten(0, 1)


def time_steps(name, model, x, labels, optimizer):
    for precision in (torch.bfloat16, torch.float32):
        for way in ("eager", "compiled"):
            forward = torch.compile(model) if way == "compiled" else model
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

            def step():
                with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision is torch.bfloat16):
                    loss = nn.functional.cross_entropy(forward(x), labels.flatten())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

            seconds = []
            for _ in range(15):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                step()
                torch.cuda.synchronize()
                seconds.append(time.perf_counter() - begin)
            kind = str(precision).removeprefix("torch.")
            rate, peak = len(x) / statistics.median(seconds[5:]), torch.cuda.max_memory_reserved() / 2**30
            print(f"{name} {way} {kind} {rate:.1f} samples/s, {peak:.2f} GiB", flush=True)


gpt = Gpt().cuda()
tokens = torch.randint(50257, (8, 1025), device="cuda")
time_steps("gpt", gpt, tokens[:, :-1], tokens[:, 1:], torch.optim.AdamW(gpt.parameters(), 1e-4))
try:
    from torchvision.models import resnet50
except ImportError:
    raise SystemExit(0)
del gpt, tokens
torch._dynamo.reset()
net, images = resnet50().cuda(), torch.randn(64, 3, 224, 224, device="cuda")
classes = torch.randint(1000, (64,), device="cuda")
time_steps("resnet50", net, images, classes, torch.optim.SGD(net.parameters(), 0.1, momentum=0.9))
