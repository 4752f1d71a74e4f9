"""Small files in the formats of the benchmarks' public data, so that tests need nothing beside the clone."""

import gzip
import tarfile
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

UCI_FOLDERS = ("bostonHousing", "concrete", "energy", "kin8nm", "power-plant", "wine-quality-red", "yacht")
IMAGES = {"train": 120, "t10k": 40}


def write_uci(folder: Path) -> None:
    """Seven tables of 20 rows with three features each, and 20 splits that test on the first two rows."""
    rng = np.random.default_rng(0)
    files: dict[str, npt.ArrayLike] = {
        "data.txt": rng.normal(3, 2, size=(20, 4)),
        "index_features.txt": np.arange(3),
        "index_target.txt": [3],
        **{f"index_train_{split}.txt": np.arange(2, 20) for split in range(20)},
        **{f"index_test_{split}.txt": np.arange(2) for split in range(20)},
    }
    (folder / "uci").mkdir()
    with tarfile.open(folder / "uci" / "uci_datasets_with_splits.tar.gz", "w:gz") as archive:
        for table in UCI_FOLDERS:
            for name, values in files.items():
                text = BytesIO()
                np.savetxt(text, values)
                entry = tarfile.TarInfo(f"{table}/data/{name}")
                entry.size = text.tell()
                archive.addfile(entry, BytesIO(text.getvalue()))


def write_mnist(folder: Path) -> None:
    """Images in which digit d has the value 25 d everywhere, except for one pixel that counts the images."""
    (folder / "mnist").mkdir()
    for part, count in IMAGES.items():
        digits = (np.arange(count) % 10).astype(np.uint8)
        pixels = np.repeat(25 * digits, 784).reshape(count, 28, 28)
        pixels[:, 0, 0] = np.arange(count) % 256
        for kind, values in (("images-idx3", pixels), ("labels-idx1", digits)):
            header = np.array([0x0800 + values.ndim, *values.shape], ">i4").tobytes()
            (folder / "mnist" / f"{part}-{kind}-ubyte.gz").write_bytes(gzip.compress(header + values.tobytes()))


def write_omniglot(folder: Path) -> None:
    """Eight characters for each part, nine noisy copies of a random picture each."""
    rng = np.random.default_rng(0)
    names = [f"{part}/character{number}" for part in ("train", "val", "test") for number in range(8)]
    images = rng.integers(0, 200, (len(names), 1, 28, 28)) + rng.integers(0, 50, (len(names), 9, 28, 28))
    splits = folder / "omniglot" / "splits_vinyals"
    splits.mkdir(parents=True)
    np.savez(
        folder / "omniglot" / "omniglot_28_uint8.npz",
        img=images.reshape(-1, 28, 28).astype(np.uint8),
        label=np.repeat(np.arange(len(names)), 9),
        class_name=np.array(names),
    )
    for part in ("train", "val", "test"):
        (splits / f"{part}.txt").write_text("\n".join(f"{name}/rot000" for name in names if name.startswith(part)))


def write_himawari(folder: Path) -> None:
    """Waves that drift over 20 x 20 pixels in every half-hour from 2026-01-28 to 2026-02-15."""
    time = np.arange("2026-01-28", "2026-02-16", np.timedelta64(30, "m"), dtype="datetime64[m]")
    y, x = np.mgrid[:20, :20]
    hours = np.arange(len(time))[:, None, None] / 2
    values = 120 + 60 * np.sin(0.5 * x - 0.7 * hours) * np.cos(0.4 * y + 0.1 * hours)
    (folder / "himawari9").mkdir()
    np.savez(folder / "himawari9" / "himawari9_lum_30min_256.npz", time=time, lum=values.astype(np.uint8))


def write_power(folder: Path) -> None:
    """Twenty days of two plants: half sines by day, weaker on every third day."""
    (folder / "pv_sites").mkdir()
    hours = np.arange(20 * 24)
    day = np.maximum(np.sin((hours % 24 - 6) * np.pi / 12), 0) * np.where(hours // 24 % 3 == 1, 0.4, 0.9)
    wobble = 1 - 0.1 * np.random.default_rng(0).random((2, len(hours)))
    stamps = (np.datetime64("2023-05-01", "h") + hours).astype(str)
    lines = ["site,time,power"]
    for name, factors in zip("ab", wobble, strict=True):
        values = zip(stamps, day * factors, strict=True)
        lines += [f"{name},{stamp.replace('T', ' ')}:00:00,{value:.5f}" for stamp, value in values]
    (folder / "pv_sites" / "pv_power.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))


def write_panels(folder: Path) -> None:
    """Write two panels with six readings a day, which are the brighter the drier the air is."""
    random = np.random.default_rng(8)
    weather = "Humidity,AmbientTemp,PolyPwr,Wind.Speed,Visibility,Pressure,Cloud.Ceiling"
    lines = [f"Location,Date,Time,Latitude,Longitude,{weather}"]
    for place, longitude in (("Here", -105.0), ("There", -90.0)):
        for day in np.arange("2018-06-01", "2018-07-11", dtype="datetime64[D]"):
            dry = random.random()
            for hour in range(10, 16):
                power = 25 * (0.3 + 0.7 * dry) * np.sin(np.pi * (hour - 5) / 15) + random.random()
                start = f"{place},{str(day).replace('-', '')},{100 * hour},40.0,{longitude}"
                lines.append(f"{start},{90 - 60 * dry:.1f},20,{power:.3f},5,10,1000,700")
    (folder / "pv_sites" / "us_12_horizontal_panels.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))


def write_all(folder: Path) -> Path:
    """Write every data set to a folder, and return it."""
    for write in (write_uci, write_mnist, write_omniglot, write_himawari, write_power, write_panels):
        write(folder)
    return folder
