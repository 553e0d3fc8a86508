"""Training steps in PyTorch: a torchvision network, and the contrast of PaCo-2 in its vectorised, exact form."""

import itertools

import torch
import torch_models
from torch.nn import functional as F

EPS = 1e-5
MARGIN = 0.2


def step(name, inputs):
    """A function that runs one forward and one backward pass, and one that returns what it computed."""
    return contrast_step(inputs) if name == "paco-contrast" else network_step(name, inputs)


def network_step(name, inputs):
    (image,) = inputs.values()
    # The faster of the two memory formats for training these networks.
    image = torch.from_numpy(image).to(memory_format=torch.channels_last)
    model = torch_models.build(name, {}).to(memory_format=torch.channels_last)
    model.train().requires_grad_(True)
    labels = torch.arange(len(image))
    latest = {}

    def run():
        model.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(image)["logits"], labels)
        loss.backward()
        latest["loss"] = loss.detach()

    return run, lambda: {"loss": latest["loss"].reshape(1).numpy()}


def contrast_step(inputs):
    parts = torch.from_numpy(inputs["parts"]).requires_grad_()

    def run():
        parts.grad = None
        contrast(parts).backward()

    def outputs():
        # What f32 gives here differs by tens of percent: agreement is checked in f64.
        wide = parts.detach().double().requires_grad_()
        loss = contrast(wide)
        loss.backward()
        return {"loss": loss.detach().float().reshape(1).numpy(), "gradient": wide.grad.float().numpy()}

    return run, outputs


def covariance(parts):
    centred = parts - parts.mean(1, keepdim=True)
    identity = torch.eye(parts.shape[2], dtype=parts.dtype)
    return centred.mT @ centred / (parts.shape[1] - 1) + EPS * identity


def contrast(parts):
    """PaC from the parts [2N, K, d] of both views: one factor per image, one solve for the whole pool."""
    images, count, d = len(parts) // 2, parts.shape[1], parts.shape[2]
    first, second = parts[:images], parts[images:]
    identity = torch.eye(d, dtype=parts.dtype)
    factor = torch.linalg.cholesky((covariance(first) + covariance(second)) / 2 + EPS * identity)
    pool = parts.reshape(-1, d)
    white = torch.linalg.solve_triangular(factor, pool.T.expand(images, -1, -1), upper=False).mT
    own = torch.arange(images * count).reshape(images, count, 1)
    anchors = white.gather(1, own.expand(-1, -1, d))
    distances = (anchors[:, :, None] - white[:, None]).square().sum(3).sqrt()
    with torch.no_grad():
        positive = images * count + torch.arange(images)[:, None] * count + match(first, second)
        near = distances.gather(2, positive[:, :, None])
        far = distances.masked_fill(distances <= near, torch.inf).scatter(2, positive[:, :, None], torch.inf)
        value, hardest = far.min(2)
        excluded = distances.scatter(2, positive[:, :, None], torch.inf)
        negative = torch.where(value.isinf(), excluded.argmin(2), hardest)
    near = distances.gather(2, positive[:, :, None])
    far = distances.gather(2, negative[:, :, None])
    return F.relu(near - far + MARGIN).mean()


def match(first, second):
    """The permutation of the second view's parts that costs least, by 1 - cos."""
    count = first.shape[1]
    cost = 1 - F.normalize(first, dim=2) @ F.normalize(second, dim=2).mT
    orders = torch.tensor(list(itertools.permutations(range(count))))
    sums = cost[:, torch.arange(count), orders].sum(2)
    return orders[sums.argmin(1)]
