"""Images that were predicted, as pictures: the most uncertain ones, and those that were confidently wrong."""

import numpy as np

from marginax.data.pictures import to_png
from marginax.report.material import Material
from marginax.report.page import AbstractBlock, Bitmap, Gallery, Section, Text
from marginax.report.uncertainty import split

_NUM_SHOWN = 12
_CONFIDENT = 0.5
_WIDTH = 96  # pixels that small images are enlarged to, about
_LARGEST = 256  # pixels of a side; larger ones would make a large file


def gallery_section(material: Material) -> Section | None:
    """None where the inputs are no images with classes."""
    if not (material.shows_images and material.of_classes and material.num_outputs == 1 and material.has_parts):
        return None
    prediction = material.prediction
    parts = split(material)
    wrong = np.asarray(prediction.labels) != material.y
    order = np.argsort(-parts.total, kind="stable")[:_NUM_SHOWN]
    confident = np.flatnonzero(wrong & (prediction.confidence > _CONFIDENT))
    confident = confident[np.argsort(-prediction.confidence[confident], kind="stable")][:_NUM_SHOWN]
    blocks: list[AbstractBlock] = [
        Text(
            f"The {len(order)} most uncertain of {len(wrong):,} held-out images, by the entropy of their prediction, "
            "in nats. Mostly epistemic: networks disagree, and more images like it would help. Mostly aleatoric: they "
            "agree that it could be either."
        ),
        Gallery(
            tuple(
                _picture(
                    material,
                    int(i),
                    f"{parts.total[i]:.2f} nats, mostly {'epistemic' if parts.share[i] > 0.5 else 'aleatoric'}",
                )
                for i in order
            )
        ),
    ]
    sure = prediction.confidence > _CONFIDENT
    said = (
        f"{wrong.sum():,} of {len(wrong):,} answers are wrong, {np.sum(wrong & sure):,} of them with a probability "
        f"above {_CONFIDENT:.0%}."
    )
    if len(confident):
        blocks.append(
            Text(f"{said} These are the surest of them: a label may be wrong, or something was learned badly.")
        )
        blocks.append(Gallery(tuple(_picture(material, int(i)) for i in confident)))
    else:
        blocks.append(Text(said))
    return Section("The most uncertain images, and those that were confidently wrong", tuple(blocks))


def _picture(material: Material, i: int, words: str = "") -> Bitmap:
    """An image with what was said of it."""
    label, observed = int(material.prediction.labels[i]), int(material.y[i])
    said = f"{material.name_class(label)} ({material.prediction.confidence[i]:.0%})"
    said += ", right" if label == observed else f", is {material.name_class(observed)}"
    name = material.name_row(i)
    caption = "\n".join(part for part in (said, words, name) if part)
    return Bitmap(_png(material, i), f"{name}: predicted {said}", caption)


def _png(material: Material, i: int) -> bytes:
    """The pixels of an image, in [0, 1] or else from the least to the largest of it."""
    shown = np.asarray(material.to_user(material.x[i]), np.float64)
    low, high = (0.0, 1.0) if shown.min() >= -1e-3 and shown.max() <= 1 + 1e-3 else (shown.min(), shown.max())
    pixels = np.clip(255 * (shown - low) / (high - low or 1.0), 0, 255).round().astype(np.uint8)
    step = -(-max(pixels.shape[1:]) // _LARGEST)
    return to_png(pixels[:, ::step, ::step], enlarge=max(1, _WIDTH // max(pixels.shape[1:])))
