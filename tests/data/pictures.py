"""Folders of small pictures for tests: dark ones and bright ones, and some with gradients."""

import csv

import numpy as np
from PIL import Image


def write_pictures(folder, num=24, *, size=(12, 10), seed=0, ending=".png", colour=False):
    """Pictures whose upper ("top") or lower ("bottom") half is brighter; names that sort in another order than made."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    labels = {}
    for i in range(num):
        top = i % 4 < 2  # in no order that names have, too
        pixels = rng.integers(0, 100, size=(*size, 3) if colour else size)
        half = size[0] // 2
        pixels[:half] += 120 if top else 0
        pixels[half:] += 0 if top else 120
        name = f"p{(7 * i) % num:03d}{ending}"
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name)
        labels[name] = "top" if top else "bottom"
    return labels


def write_labels(path, labels, *, header=("file", "label"), delimiter=","):
    """In the order of the dict, which is not that of the names."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerows(([header] if header else []) + list(labels.items()))
    return path
