"""The work items as PyTorch modules, with the weights that percept seeds by name.

Each module returns {output name: tensor}, with the names that percept gives its outputs.
"""

import math

import numpy as np
import torch
import torchvision
from torch import nn
from torch.nn import functional as F


def uniform(name, count):
    """percept's name-seeded stream in [0, 1): FNV-1a of the name, then SplitMix64."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) % 2**64
    x = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return (x >> np.uint64(40)).astype(np.float32) / np.float32(2**24)


def seeded(name, shape):
    """The seeded value of the parameter or buffer `name`."""
    u = uniform(name, math.prod(shape))
    signed, kind = 2 * u - 1, name.rsplit(".", 1)[-1]
    if kind == "weight" and len(shape) >= 2:
        value = signed * np.float32(math.sqrt(3 / math.prod(shape[1:])))
    elif kind == "running_var" or kind == "weight":
        value = np.float32(0.5) + u
    elif kind in ("bias", "running_mean"):
        value = signed * np.float32(0.1)
    elif name.endswith(("ls1.gamma", "ls2.gamma")):
        value = np.float32(0.1) + np.float32(0.1) * u
    else:
        value = signed * np.float32(0.02)
    return torch.from_numpy(value.reshape(shape))


def seed_weights(module):
    state = module.state_dict()
    for name, tensor in state.items():
        if tensor.is_floating_point():
            tensor.copy_(seeded(name, tuple(tensor.shape)))
    return module


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)})
        self.ls1 = nn.ParameterDict({"gamma": torch.empty(width)})
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)})
        self.ls2 = nn.ParameterDict({"gamma": torch.empty(width)})

    def attention(self, x):
        batch, tokens, width = x.shape
        qkv = self.attn["qkv"](x).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.attn["proj"](y.transpose(1, 2).reshape(batch, tokens, width))

    def forward(self, x):
        x = x + self.ls1["gamma"] * self.attention(self.norm1(x))
        hidden = F.gelu(self.mlp["fc1"](self.norm2(x)))
        return x + self.ls2["gamma"] * self.mlp["fc2"](hidden)


class DinoV2(nn.Module):
    """ViT/14 without registers at its training size, where the position embedding needs no resize."""

    def __init__(self, width=768, depth=12, heads=12, image_size=518):
        super().__init__()
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.pos_embed = nn.Parameter(torch.empty(1, 1 + (image_size // 14) ** 2, width))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, 14, stride=14)})
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, image):
        patches = self.patch_embed["proj"](image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(image), -1, -1), patches], dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return {"x_norm_clstoken": x[:, 0], "x_norm_patchtokens": x[:, 1:]}


class Conv(nn.Module):
    """A single layer, as `percept bench conv2d` runs it, or several behind one another."""

    def __init__(self, in_channels, out_channels, kernel, padding=0, stride=1, depth=1):
        super().__init__()
        self.layer = nn.Conv2d(in_channels, out_channels, kernel, stride, padding)
        self.behind = [f"layer{number}" for number in range(2, depth + 1)]
        for name in self.behind:
            setattr(self, name, nn.Conv2d(out_channels, out_channels, kernel, stride, padding))

    def forward(self, x):
        y = self.layer(x)
        for name in self.behind:
            y = getattr(self, name)(F.relu(y))
        return {"y": y}


class Classifier(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, image):
        return {"logits": self.network(image)}


def build(name, settings):
    """The module for percept's model `name` with its `--set` settings, seeded, ready for inference."""
    if name == "conv2d":
        keys = ("in_channels", "out_channels", "kernel", "padding", "stride", "depth")
        module = seed_weights(Conv(**{key: int(settings[key]) for key in keys if key in settings}))
    elif name == "dinov2-vitb14":
        module = seed_weights(DinoV2())
    else:
        # torchvision's EfficientNet has BatchNorm's default eps, as percept does.
        network = getattr(torchvision.models, name.replace("-", "_"))(weights=None)
        module = Classifier(seed_weights(network))
    return module.eval().requires_grad_(False)
