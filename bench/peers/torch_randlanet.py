"""RandLA-Net as PyTorch runs it, in Open3D-ML's layout [B, C, N, K], with the weights that percept seeds by name."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from point_trees import RATIO, levels
from torch_models import seed_weights

ENCODER, DECODER, CLASSES = (16, 64, 128, 256), (256, 128, 32, 32), 19


def as_tensors(found):
    """Levels as the network takes them."""
    return [
        (torch.from_numpy(points), torch.from_numpy(lists.astype(np.int64)), torch.from_numpy(nearest.astype(np.int64)))
        for points, lists, nearest in found
    ]


class SharedMLP(nn.Module):
    def __init__(self, inputs, outputs, norm=True, activation=None, transposed=False):
        super().__init__()
        self.conv = (nn.ConvTranspose2d if transposed else nn.Conv2d)(inputs, outputs, 1)
        self.batch_norm = nn.BatchNorm2d(outputs, eps=1e-6, momentum=0.01) if norm else nn.Identity()
        self.activation_fn = activation or nn.Identity()

    def forward(self, x):
        return self.activation_fn(self.batch_norm(self.conv(x)))


def leaky():
    return nn.LeakyReLU(0.2)


def gather(x, lists):
    """Features [B, C, N, 1] of each point's neighbours: [B, C, N, K]."""
    return x[:, :, lists.reshape(-1), 0].reshape(x.shape[0], x.shape[1], *lists.shape)


class Encoding(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.mlp = SharedMLP(inputs, outputs, activation=leaky())

    def forward(self, positions, features, lists):
        encoded = self.mlp(positions)
        return torch.cat([gather(features, lists), encoded], dim=1), encoded


class Pooling(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.score_fn = nn.Sequential(nn.Linear(inputs, inputs), nn.Softmax(dim=-2))
        self.mlp = SharedMLP(inputs, outputs, activation=leaky())

    def forward(self, x):
        scores = self.score_fn(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return self.mlp((scores * x).sum(dim=-1, keepdim=True))


class Aggregation(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        half = width // 2
        self.mlp1 = SharedMLP(inputs, half, activation=leaky())
        self.lse1 = Encoding(10, half)
        self.pool1 = Pooling(width, half)
        self.lse2 = Encoding(half, half)
        self.pool2 = Pooling(width, width)
        self.mlp2 = SharedMLP(width, 2 * width)
        self.shortcut = SharedMLP(inputs, 2 * width)
        self.lrelu = nn.LeakyReLU(0.01)

    def forward(self, features, points, lists):
        own = points[:, None].expand(-1, lists.shape[1], -1)
        near = points[lists]
        away = own - near
        distance = away.square().sum(2, keepdim=True).sqrt()
        positions = torch.cat([distance, away, own, near], dim=2).permute(2, 0, 1)[None]
        x, encoded = self.lse1(positions, self.mlp1(features), lists)
        x, _ = self.lse2(encoded, self.pool1(x), lists)
        return self.lrelu(self.mlp2(self.pool2(x)) + self.shortcut(features))


class RandLaNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc0 = nn.Linear(3, 8)
        self.bn0 = nn.BatchNorm2d(8, eps=1e-6, momentum=0.01)
        inputs = [8, *(2 * width for width in ENCODER)]
        self.encoder = nn.ModuleList(Aggregation(a, b) for a, b in zip(inputs, ENCODER))
        self.mlp = SharedMLP(inputs[-1], inputs[-1], activation=leaky())
        # The first level hands over what it encodes and what it samples, the others what they sample.
        skips = [inputs[1], *inputs[1:-1]]
        below = [inputs[-1], *DECODER]
        self.decoder = nn.ModuleList(
            SharedMLP(skip + under, out, activation=leaky(), transposed=True)
            for skip, under, out in zip(reversed(skips), below, DECODER)
        )
        last = DECODER[-1]
        self.fc1 = nn.Sequential(
            SharedMLP(last, 64, activation=leaky()),
            SharedMLP(64, 32, activation=leaky()),
            nn.Dropout(0.5),
            SharedMLP(32, CLASSES, norm=False),
        )

    def forward(self, found):
        x = self.fc0(found[0][0]).T[None, :, :, None]
        x = F.leaky_relu(self.bn0(x), 0.2)
        skips = []
        for depth, (layer, (points, lists, _)) in enumerate(zip(self.encoder, found)):
            x = layer(x, points, lists)
            if depth == 0:
                skips.append(x)
            kept = max(1, len(points) // RATIO)
            x = gather(x, lists[:kept]).max(dim=-1, keepdim=True).values
            skips.append(x)
        x = self.mlp(x)
        for layer, (_, _, nearest), skip in zip(self.decoder, reversed(found), reversed(skips[:-1])):
            x = layer(torch.cat([skip, x[:, :, nearest]], dim=1))
        return {"logits": self.fc1(x)[0, :, :, 0].T}


def build():
    """The network, seeded, ready for inference."""
    return seed_weights(RandLaNet()).eval().requires_grad_(False)


def training_step(points, search):
    """One forward and one backward pass in train mode, with the public pipeline's weighted loss; neighbours are there."""
    found = as_tensors(levels(points, search))
    model = seed_weights(RandLaNet()).train().requires_grad_(True)
    labels = torch.arange(len(points)) % CLASSES
    weights = torch.full((CLASSES,), 1 / (1 / CLASSES + 0.02))
    latest = {}

    def run():
        model.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(found)["logits"], labels, weight=weights)
        loss.backward()
        latest["loss"] = loss.detach()

    return run, lambda: {"loss": latest["loss"].reshape(1).numpy()}
