"""The search for RandLA-Net's neighbours with the k-d trees that Python has.

Points come in the order of their shuffle, so each level is the first quarter of the one above.
"""

import numpy as np

NEIGHBOURS, RATIO, LEVELS = 16, 4, 4


def pykdtree_search(threads):
    """A function that builds a tree of points and one that asks it; threads come from OMP_NUM_THREADS."""
    from pykdtree.kdtree import KDTree

    return KDTree, lambda tree, points, k: tree.query(points, k=k, sqr_dists=True)[1]


def scipy_search(threads):
    from scipy.spatial import cKDTree

    return cKDTree, lambda tree, points, k: tree.query(points, k=k, workers=threads)[1]


def small_gicp_search(threads):
    import small_gicp

    def build(points):
        return small_gicp.KdTree(points.astype(np.float64), num_threads=threads)

    def ask(tree, points, k):
        return tree.batch_knn_search(points.astype(np.float64), k, num_threads=threads)[0]

    return build, ask


SEARCHES = {"pykdtree": pykdtree_search, "scipy": scipy_search, "small_gicp": small_gicp_search}


def neighbours(points, search):
    build, ask = search
    return ask(build(points), points, NEIGHBOURS)


def levels(points, search):
    """The neighbours of each level, and for each of its points the nearest one of the next level."""
    build, ask = search
    found, tree = [], build(points)
    for _ in range(LEVELS):
        kept = points[: max(1, len(points) // RATIO)]
        lists = ask(tree, points, NEIGHBOURS)
        tree = build(kept)
        nearest = ask(tree, points, 1).reshape(-1)
        found.append((points, lists, nearest))
        points = kept
    return found
