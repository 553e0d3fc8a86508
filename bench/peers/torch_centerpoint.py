"""CenterPoint as PyTorch and spconv run it, in OpenPCDet's layout, with the weights that percept seeds by name."""

import dataclasses
import logging
import warnings

import numpy as np
import spconv.pytorch as spconv
import torch
from torch import nn

from torch_models import seed_weights, seeded

# spconv 2.3.8 uses what PyTorch has since deprecated; the outputs are checked.
warnings.filterwarnings("ignore", module="spconv")
logging.getLogger("torch.fx").setLevel(logging.ERROR)

HEIGHT_M = (-5.0, 3.0)
MAX_POINTS, MAX_VOXELS = 10, 160_000
CLASSES_OF_HEADS = (1, 2, 2, 1, 2, 2)
BRANCHES = {"center": 2, "center_z": 1, "dim": 3, "rot": 2, "vel": 2}


@dataclasses.dataclass(frozen=True)
class Layout:
    """How far a network sees, in which voxels, and how wide and deep it is: percept's settings of the same names."""

    range_m: float = 54.0
    voxel_m: float = 0.075
    stages: tuple = (16, 32, 64, 128)
    blocks: int = 2
    map: tuple = (128, 256)
    map_depth: int = 5
    map_out: int = 256
    head: int = 64


PUBLIC = Layout()
SMALL = Layout(25.6, 0.16, (16, 16, 32, 32), 1, (32, 48), 2, 32, 16)


def voxelize(points, layout=PUBLIC):
    """Mean features [V, 5], sites (batch, z, y, x) [V, 4] and the grid's shape; in the order of first points."""
    reach, voxel_m = layout.range_m, np.array([layout.voxel_m, layout.voxel_m, 0.2], np.float32)
    low = np.array([-reach, -reach, HEIGHT_M[0]], np.float32)
    high = np.array([reach, reach, HEIGHT_M[1]], np.float32)
    grid = np.round((high - low) / voxel_m).astype(np.int64)
    cells = np.floor((points[:, :3] - low) / voxel_m).astype(np.int64)
    inside = ((cells >= 0) & (cells < grid)).all(axis=1)
    points, cells = points[inside], cells[inside]
    x, y, z = cells.T
    keys, first, voxel = np.unique((z * grid[1] + y) * grid[0] + x, return_index=True, return_inverse=True)
    order = np.argsort(first)  # sorted voxels by their first point
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    voxel = rank[voxel]
    # The place of each point among its voxel's, in file order: only the first MAX_POINTS count.
    by_voxel = np.argsort(voxel, kind="stable")
    counts = np.bincount(voxel, minlength=len(keys))
    place = np.arange(len(points)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = by_voxel[(place < MAX_POINTS) & (voxel[by_voxel] < MAX_VOXELS)]
    voxels = min(len(keys), MAX_VOXELS)
    sums = np.zeros((voxels, points.shape[1]), np.float32)
    np.add.at(sums, voxel[kept], points[kept])
    features = sums / np.minimum(counts[:voxels], MAX_POINTS)[:, None].astype(np.float32)
    x, y, z = cells[first[order[:voxels]]].T
    sites = np.stack([np.zeros_like(x), z, y, x], axis=1).astype(np.int32)
    return torch.from_numpy(features), torch.from_numpy(sites), [int(grid[2]) + 1, int(grid[1]), int(grid[0])]


def sparse_conv(inputs, outputs, kernel, stride, padding):
    conv = spconv.SparseConv3d(inputs, outputs, kernel, stride, padding, bias=False)
    return spconv.SparseSequential(conv, nn.BatchNorm1d(outputs, eps=1e-3), nn.ReLU())


class SparseBlock(spconv.SparseModule):
    """Two submanifold convolutions around a residual; batch norms hold their biases, which spconv on CPU has not."""

    def __init__(self, channels, key):
        super().__init__()
        self.conv1 = spconv.SubMConv3d(channels, channels, 3, padding=1, bias=False, indice_key=key)
        self.bn1 = nn.BatchNorm1d(channels, eps=1e-3)
        self.conv2 = spconv.SubMConv3d(channels, channels, 3, padding=1, bias=False, indice_key=key)
        self.bn2 = nn.BatchNorm1d(channels, eps=1e-3)

    def absorb_biases(self, path):
        for index in "12":
            mean = getattr(self, f"bn{index}").running_mean
            mean -= seeded(f"{path}.conv{index}.bias", tuple(mean.shape))

    def forward(self, x):
        y = self.conv1(x)
        y = self.conv2(y.replace_feature(torch.relu(self.bn1(y.features))))
        return y.replace_feature(torch.relu(self.bn2(y.features) + x.features))


class Backbone3d(nn.Module):
    """VoxelResBackBone8x: one rulebook for all the submanifold convolutions of a resolution."""

    def __init__(self, layout):
        super().__init__()
        self.blocks = layout.blocks
        first, second, third, last = layout.stages
        entry = spconv.SubMConv3d(5, first, 3, padding=1, bias=False, indice_key="conv1")
        self.conv_input = spconv.SparseSequential(entry, nn.BatchNorm1d(first, eps=1e-3), nn.ReLU())
        self.conv1 = spconv.SparseSequential(*self.residuals(first, "conv1"))
        self.conv2 = self.stage(first, second, 1, "conv2")
        self.conv3 = self.stage(second, third, 1, "conv3")
        self.conv4 = self.stage(third, last, (0, 1, 1), "conv4")
        self.conv_out = sparse_conv(last, last, (3, 1, 1), (2, 1, 1), 0)

    def residuals(self, channels, key):
        return [SparseBlock(channels, key) for _ in range(self.blocks)]

    def stage(self, inputs, outputs, padding, key):
        return spconv.SparseSequential(sparse_conv(inputs, outputs, 3, 2, padding), *self.residuals(outputs, key))

    def forward(self, x):
        for stage in (self.conv_input, self.conv1, self.conv2, self.conv3, self.conv4, self.conv_out):
            x = stage(x)
        return x


def conv_bn_relu(inputs, outputs, stride=1, **options):
    """Convolution 3x3 with its batch norm, as OpenPCDet lines them up in a Sequential."""
    conv = nn.Conv2d(inputs, outputs, 3, stride, bias=False, **options)
    return conv, nn.BatchNorm2d(outputs, eps=1e-3), nn.ReLU()


class Backbone2d(nn.Module):
    """BaseBEVBackbone: two scales, brought back to one and stacked."""

    def __init__(self, layout):
        super().__init__()
        self.depth, self.outputs = layout.map_depth, layout.map_out
        fine, coarse = layout.map
        self.blocks = nn.ModuleList([self.block(2 * layout.stages[-1], fine, 1), self.block(fine, coarse, 2)])
        self.deblocks = nn.ModuleList([self.deblock(fine, 1), self.deblock(coarse, 2)])

    def block(self, inputs, outputs, stride):
        rest = [layer for _ in range(self.depth) for layer in conv_bn_relu(outputs, outputs, padding=1)]
        return nn.Sequential(nn.ZeroPad2d(1), *conv_bn_relu(inputs, outputs, stride), *rest)

    def deblock(self, inputs, scale):
        conv = nn.ConvTranspose2d(inputs, self.outputs, scale, stride=scale, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(self.outputs, eps=1e-3), nn.ReLU())

    def forward(self, x):
        fine = self.blocks[0](x)
        coarse = self.blocks[1](fine)
        return torch.cat([self.deblocks[0](fine), self.deblocks[1](coarse)], dim=1)


def head_conv(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class CenterHead(nn.Module):
    def __init__(self, layout):
        super().__init__()
        self.shared_conv = head_conv(2 * layout.map_out, layout.head)
        self.heads_list = nn.ModuleList(self.head(classes, layout.head) for classes in CLASSES_OF_HEADS)

    @staticmethod
    def head(classes, width):
        branches = BRANCHES | {"hm": classes}
        last = {name: nn.Conv2d(width, channels, 3, padding=1) for name, channels in branches.items()}
        return nn.ModuleDict({name: nn.Sequential(head_conv(width, width), conv) for name, conv in last.items()})

    def forward(self, x):
        x = self.shared_conv(x)
        heads = enumerate(self.heads_list)
        return {f"head{index}.{name}": branch(x) for index, head in heads for name, branch in head.items()}


class SparsePart(nn.Module):
    """Voxels to the bird's-eye map. The rulebooks are built in each call, as for each new sweep."""

    def __init__(self, layout=PUBLIC):
        super().__init__()
        self.backbone_3d = Backbone3d(layout)

    def bev(self, features, sites, shape, samples=1):
        volume = self.backbone_3d(spconv.SparseConvTensor(features, sites, shape, batch_size=samples)).dense()
        return volume.flatten(1, 2)

    def forward(self, *voxels):
        return {"bev": self.bev(*voxels)}


class DensePart(nn.Module):
    """The bird's-eye map to the maps of the six heads."""

    def __init__(self, layout=PUBLIC):
        super().__init__()
        self.backbone_2d = Backbone2d(layout)
        self.dense_head = CenterHead(layout)

    def forward(self, bev):
        return self.dense_head(self.backbone_2d(bev))


class CenterPoint(nn.Module):
    """Voxels to the maps of the six heads, without decoding."""

    def __init__(self, layout=PUBLIC):
        super().__init__()
        self.backbone_3d = Backbone3d(layout)
        self.backbone_2d = Backbone2d(layout)
        self.dense_head = CenterHead(layout)

    bev = SparsePart.bev

    def forward(self, *voxels):
        return DensePart.forward(self, self.bev(*voxels))


MODULES = {"centerpoint-sparse": SparsePart, "centerpoint-dense": DensePart, "centerpoint": CenterPoint}


def build(name):
    """The module for percept's model `name`, seeded, ready for inference."""
    module = seed_weights(MODULES[name]())
    for path, part in module.named_modules():
        if isinstance(part, SparseBlock):
            part.absorb_biases(path)
    return module.eval().requires_grad_(False)


def batch_of(clouds, layout):
    """The voxels of several sweeps as one batch."""
    voxels = [voxelize(points, layout) for points in clouds]
    for sample, (_, sites, _) in enumerate(voxels):
        sites[:, 0] = sample
    features, sites = (torch.cat([part[index] for part in voxels]) for index in (0, 1))
    return features, sites, voxels[0][2], len(clouds)


def training_step(clouds, layout=SMALL, backward=True):
    """Two functions: a forward and, unless told otherwise, a backward pass over the sweeps; and what it computed.

    The loss is the mean square of every map, which is less work than percept's targets and losses. Voxels are made once,
    and nothing is updated.
    """
    batch = batch_of(clouds, layout)
    model = CenterPoint(layout).train()
    latest = {}

    def run():
        model.zero_grad(set_to_none=True)
        with torch.set_grad_enabled(backward):
            loss = sum(head.square().mean() for head in model(*batch).values())
        if backward:
            loss.backward()
        latest["loss"] = loss.detach()

    return run, lambda: {"loss": latest["loss"].reshape(1).numpy()}
