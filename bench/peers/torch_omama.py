"""O-MaMa's head and its backbone with registers as PyTorch runs them, with the weights that percept seeds by name.

Written from a description of what the public system computes, and from none of its code.
"""

import torch
from torch import nn
from torch.nn import functional as F

from torch_models import Block, seed_weights

WIDTH, HEADS, CELL, PATCH = 768, 4, 4, 14
SOURCE_GRID, DEST_GRID = (38, 68), (50, 50)
TEMPERATURE = 0.07


class CrossAttention(nn.Module):
    """Keys and values are made of all patches, as published."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.project = nn.Sequential(nn.Linear(WIDTH, WIDTH))
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.norm_input, self.norm_output = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, queries, patches):
        queries, patches = self.norm_input(queries), self.norm_input(patches)
        batch, rows, _ = queries.shape

        def heads(x):
            return x.view(batch, -1, HEADS, WIDTH // HEADS).transpose(1, 2)

        q, k, v = heads(self.query(queries)), heads(self.key(patches)), heads(self.value(patches))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, rows, WIDTH)
        y = self.project(y)
        return y + self.mlp(self.norm_output(y))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Linear(3 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
        self.mlp = nn.Sequential(*layers)

    def forward(self, x):
        return self.mlp(x)


class Head(nn.Module):
    """From features of both views and descriptors of masks to similarities."""

    def __init__(self):
        super().__init__()
        patches = [rows * columns for rows, columns in (DEST_GRID, SOURCE_GRID)]
        self.pos_embed_T, self.pos_embed_Q = (nn.Parameter(torch.empty(1, count, WIDTH)) for count in patches)
        self.CROSS_context_attn, self.mlp = CrossAttention(), Mlp()

    def forward(self, source, dest, wanted, offered):
        in_dest = self.CROSS_context_attn(wanted[..., :WIDTH], dest + self.pos_embed_T)
        in_source = self.CROSS_context_attn(offered[..., :WIDTH], source + self.pos_embed_Q)
        q = self.mlp(torch.cat([in_dest, wanted], dim=2))
        t = self.mlp(torch.cat([in_source, offered], dim=2))
        return F.cosine_similarity(q, t, dim=2)


def means(features, pool):
    """Descriptors as one product in the space of patches: the faster of PyTorch's two ways by far."""
    batch, masks, halves, patches = pool.shape
    return (pool.reshape(batch, masks * halves, patches) @ features).view(batch, masks, halves * WIDTH)


def enlarged_means(features, masks):
    """Descriptors as published: the features are enlarged to a quarter of the picture, then the mean under each mask."""
    rows, columns = DEST_GRID
    grid = features.transpose(1, 2).view(1, WIDTH, rows, columns)
    size = (rows * PATCH // CELL, columns * PATCH // CELL)
    large = F.interpolate(grid, size=size, mode="bilinear", align_corners=False)[0]
    return torch.stack([large[:, mask].mean(dim=1) for mask in masks])


def head(inputs):
    model = seed_weights(Head()).eval().requires_grad_(False)
    tensors = {name: torch.from_numpy(value) for name, value in inputs.items()}

    def run():
        source, dest = tensors["source_features"], tensors["dest_features"]
        wanted, offered = means(source, tensors["source_pool"]), means(dest, tensors["dest_pool"])
        return {"similarity": model(source, dest, wanted, offered)}

    return run


def descriptors(inputs):
    """32 masks, each a disc; their boxes' surroundings are means over a box of the same map."""
    features = torch.from_numpy(inputs["dest_features"])
    rows, columns = (side * PATCH // CELL for side in DEST_GRID)
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    centres = [(11 * number % rows, 37 * number % columns) for number in range(32)]
    masks = [(y - cy) ** 2 + (x - cx) ** 2 <= 15**2 for cy, cx in centres]
    boxes = [(abs(y - cy) <= 40) & (abs(x - cx) <= 40) for cy, cx in centres]
    return lambda: {"descriptors": enlarged_means(features, masks + boxes)}


def training_step(inputs, batch):
    """Forward, backward and AdamW of the head, with the features of both views in memory."""
    model = seed_weights(Head())
    optimiser = torch.optim.AdamW(model.parameters(), lr=8e-5, weight_decay=0.01)
    tensors = {name: torch.from_numpy(value).repeat(batch, *[1] * (value.ndim - 1)) for name, value in inputs.items()}
    truth = torch.zeros(batch, dtype=torch.long)
    latest = {}

    def run():
        source, dest = tensors["source_features"], tensors["dest_features"]
        wanted, offered = means(source, tensors["source_pool"]), means(dest, tensors["dest_pool"])
        loss = F.cross_entropy(model(source, dest, wanted, offered) / TEMPERATURE, truth)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        latest["loss"] = loss.detach().reshape(1)

    return run, lambda: {"loss": latest["loss"].numpy()}


class Registers(nn.Module):
    """DINOv2 ViT-B/14 with registers at one size: the position embedding is resized once, beforehand."""

    def __init__(self, side):
        super().__init__()
        self.grid = side // PATCH
        self.cls_token = nn.Parameter(torch.empty(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(torch.empty(1, 1 + 37**2, WIDTH))
        self.register_tokens = nn.Parameter(torch.empty(1, 4, WIDTH))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)})
        self.blocks = nn.ModuleList(Block(WIDTH, 12) for _ in range(12))
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)

    def settle(self):
        square = self.pos_embed[:, 1:].view(1, 37, 37, WIDTH).permute(0, 3, 1, 2)
        size = (self.grid, self.grid)
        square = F.interpolate(square, size=size, mode="bicubic", antialias=True, align_corners=False)
        self.resized = torch.cat([self.pos_embed[:, :1], square.flatten(2).transpose(1, 2)], dim=1)
        return self

    def forward(self, image):
        patches = self.patch_embed["proj"](image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(image), -1, -1), patches], dim=1) + self.resized
        x = torch.cat([x[:, :1], self.register_tokens.expand(len(image), -1, -1), x[:, 1:]], dim=1)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return {"x_norm_clstoken": x[:, 0], "x_norm_regtokens": x[:, 1:5], "x_norm_patchtokens": x[:, 5:]}


def backbone(inputs):
    image = torch.from_numpy(inputs["image"])
    model = seed_weights(Registers(image.shape[-1])).eval().requires_grad_(False).settle()
    return lambda: model(image)
