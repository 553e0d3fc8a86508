"""LCPR as PyTorch runs it, with the public state dict's names and the weights that percept seeds by name."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from torch_models import seeded, uniform

CAMERAS, HEADS, FEATURES, CLUSTERS, OUT = 6, 4, 256, 32, 128


class Block(nn.Module):
    """ResNet-18's basic block."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


def stage(inputs, outputs, stride):
    return nn.Sequential(Block(inputs, outputs, stride), Block(outputs, outputs, 1))


class VertConv(nn.Module):
    """A map [B, C, H, W] to columns [B, O, W]."""

    def __init__(self, channels, middle, outputs):
        super().__init__()
        self.input_conv = nn.Sequential(nn.Conv2d(channels, channels, 1), nn.Sigmoid(), nn.Conv2d(channels, channels, 1))
        self.reduce_conv = nn.Sequential(nn.Conv1d(channels, middle, 1, bias=False), nn.BatchNorm1d(middle), nn.ReLU())
        self.conv = nn.Sequential(
            nn.Conv1d(middle, middle, 3, padding=1, bias=False),
            nn.BatchNorm1d(middle),
            nn.ReLU(),
            nn.Conv1d(middle, middle, 3, padding=1, bias=False),
            nn.BatchNorm1d(middle),
            nn.ReLU(),
        )
        self.out_conv = nn.Sequential(nn.Conv1d(middle, outputs, 1), nn.BatchNorm1d(outputs), nn.ReLU())

    def forward(self, x):
        x = self.reduce_conv(self.input_conv(x).max(dim=2).values)
        return self.out_conv(self.conv(x) + x)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w_q, self.w_k, self.w_v, self.w_concat = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (w(x).view(batch, tokens, HEADS, -1).transpose(1, 2) for w in (self.w_q, self.w_k, self.w_v))
        y = F.scaled_dot_product_attention(q, k, v)
        return self.w_concat(y.transpose(1, 2).reshape(batch, tokens, width))


def panorama(x):
    """[6B, C, H, W] to [B, C, H, 6W]."""
    _, channels, height, width = x.shape
    x = x.view(-1, CAMERAS, channels, height, width)
    return x.permute(0, 2, 3, 1, 4).reshape(-1, channels, height, CAMERAS * width)


class Fusion(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.v_conv_i, self.v_conv_l = (VertConv(channels, channels // 2, channels) for _ in range(2))
        self.atten = Attention(channels)

    def forward(self, x_i, x_l):
        a, b = self.v_conv_i(panorama(x_i)), self.v_conv_l(x_l)
        tokens = torch.cat([a, b], dim=2).transpose(1, 2)
        tokens = (tokens + self.atten(tokens)).transpose(1, 2)
        a, b = tokens.split([a.shape[2], b.shape[2]], dim=2)
        a = a.view(a.shape[0], a.shape[1], CAMERAS, 1, -1).transpose(1, 2).flatten(0, 1)
        return x_i + a, x_l + b.unsqueeze(2)


class GatingContext(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gating_weights = nn.Parameter(torch.empty(width, width))
        self.bn1 = nn.BatchNorm1d(width)

    def forward(self, x):
        return x * torch.sigmoid(self.bn1(x @ self.gating_weights))


class NetVLADLoupe(nn.Module):
    def __init__(self):
        super().__init__()
        self.cluster_weights = nn.Parameter(torch.empty(FEATURES, CLUSTERS))
        self.cluster_weights2 = nn.Parameter(torch.empty(1, FEATURES, CLUSTERS))
        self.hidden1_weights = nn.Parameter(torch.empty(FEATURES * CLUSTERS, OUT))
        self.bn1, self.bn2 = nn.BatchNorm1d(CLUSTERS), nn.BatchNorm1d(OUT)
        self.context_gating = GatingContext(OUT)

    def forward(self, x):
        x = x.transpose(1, 2)
        shares = self.bn1((x @ self.cluster_weights).flatten(0, 1)).softmax(dim=1).view(*x.shape[:2], -1)
        centres = shares.sum(dim=1, keepdim=True) * self.cluster_weights2
        v = F.normalize(x.transpose(1, 2) @ shares - centres, dim=1).flatten(1)
        return self.context_gating(F.normalize(v, dim=1) @ self.hidden1_weights)


class ChannelAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 1, 3, padding=1, bias=False)

    def forward(self, x):
        return x * torch.sigmoid(self.conv(x.unsqueeze(1)).squeeze(1))


class LCPR(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1_i, self.bn1_i = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.layer1_i, self.conv_l = stage(64, 64, 1), nn.Conv2d(1, 64, 1)
        for number, width in ((2, 128), (3, 256), (4, 512)):
            for modality in "il":
                setattr(self, f"layer{number}_{modality}", stage(width // 2, width, 2))
        for number in range(1, 5):
            setattr(self, f"fusion{number}", Fusion(32 << number))
        self.v_conv_i, self.v_conv_l = (VertConv(512, 256, FEATURES) for _ in range(2))
        self.netvlad_i, self.netvlad_l = NetVLADLoupe(), NetVLADLoupe()
        self.eca = ChannelAttention()

    def forward(self, camera, ranges):
        x_i = F.max_pool2d(F.relu(self.bn1_i(self.conv1_i(camera.flatten(0, 1)))), 3, 2, 1)
        x_i, x_l = self.fusion1(self.layer1_i(x_i), self.conv_l(ranges))
        for number in (2, 3, 4):
            x_i, x_l = getattr(self, f"layer{number}_i")(x_i), getattr(self, f"layer{number}_l")(x_l)
            x_i, x_l = getattr(self, f"fusion{number}")(x_i, x_l)
        y_i = self.netvlad_i(self.v_conv_i(panorama(x_i)))
        y_l = self.netvlad_l(self.v_conv_l(x_l))
        return {"descriptor": F.normalize(self.eca(torch.cat([y_i, y_l], dim=1)), dim=1)}


def weights(name, shape):
    """LCPR's family of seeds: scales are rounded in f32, and parameters without a usual name divide by the last side."""
    signed = 2 * uniform(name, math.prod(shape)) - 1
    kind = name.rsplit(".", 1)[-1]
    if kind == "weight" and len(shape) >= 2:
        scale = np.sqrt(np.float32(3) / np.float32(math.prod(shape[1:])))
    elif kind in ("weight", "bias", "running_mean", "running_var"):
        return seeded(name, shape)
    else:
        return torch.from_numpy((signed / np.sqrt(np.float32(shape[-1]))).reshape(shape))
    return torch.from_numpy((signed * scale).reshape(shape))


def build():
    model = LCPR()
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(weights(name, tuple(tensor.shape)))
    return model.eval().requires_grad_(False)
