"""The peer's models: the training jobs that PyTorch users run, each as one callable step.

Models, optimizers and settings are those of an expert user (fused optimizers, autocast, channels_last, static
shapes). Data is synthetic and lives on the device. Knows nothing of profiles or of Counterpoint.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).split(width, dim=2)
        q, k, v = (p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    """GPT-2 with a tied head; `residual` is the dtype of the residual stream (autocast leaves it fp32)."""

    def __init__(self, layers, width, heads, length, residual, vocabulary=50304):
        super().__init__()
        self.residual = residual
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif "norm" not in name:
                deep = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if deep else 0.02)
        self.head.weight = self.tokens.weight

    def forward(self, inputs, targets):
        x = self.tokens(inputs) + self.positions(torch.arange(inputs.shape[1], device=inputs.device))
        x = x.to(self.residual)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Classifier(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images, labels):
        return F.cross_entropy(self.network(images), labels)


GPT2_SHAPES = {"gpt2-124m": (12, 768, 12), "gpt2-355m": (24, 1024, 16), "gpt-1.3b": (24, 2048, 16)}
TIMM = {"vit-b": "vit_base_patch16_224", "swin-l": "swin_large_patch4_window7_224"}


def build(model, batch, residual, device):
    """(network, data, optimizer, units a step) of one job."""
    if model in GPT2_SHAPES:
        layers, width, heads = GPT2_SHAPES[model]
        length = 1024
        with torch.device(device):
            network = Gpt2(layers, width, heads, length, residual)
            data = tuple(torch.randint(0, 50257, (batch, length)) for _ in range(2))
        decay = [p for p in network.parameters() if p.dim() >= 2]
        rest = [p for p in network.parameters() if p.dim() < 2]
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        return network, data, torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True), batch * length
    with torch.device(device):
        images, labels = torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))
    if model == "resnet-50":
        import torchvision

        network = Classifier(torchvision.models.resnet50()).to(device, memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5, fused=True)
    else:
        import timm

        network = Classifier(timm.create_model(TIMM[model])).to(device)
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    return network, (images, labels), optimizer, batch
