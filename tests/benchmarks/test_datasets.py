"""The loaders read the raw formats, and scale by public constants alone."""

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks.datasets import BadData, MissingData, load

ADULT_ROW = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, "
    "2174, 0, 40, {country}, {label}"
)
BANK_HEADER = (
    '"age";"job";"marital";"education";"default";"balance";"housing";"loan";"contact";"day";"month";"duration";'
    '"campaign";"pdays";"previous";"poutcome";"y"'
)
BANK_ROW = (
    '58;"management";"married";"tertiary";"no";{balance};"yes";"no";"unknown";5;"may";261;1;-1;0;'
    '"unknown";"{y}"'
)
KDD_ROW = "{seconds},udp,{service},SF,105,146," + "0," * 16 + "1,1," + "0.00," * 4 + "1.00,0.00,0.00,255,254,"
KDD_END = "1.00,0.01," + "0.00," * 6 + "{label}"


def _pack(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


@pytest.fixture
def adult(tmp_path: Path) -> Path:
    rows = [ADULT_ROW.format(country=c, label=y) for c, y in (("?", "<=50K"), ("Cuba", ">50K"))]
    _pack(tmp_path / "adult" / "adult.data.gz", [*rows, ""])
    test = ADULT_ROW.format(country="Peru", label=">50K.")
    _pack(tmp_path / "adult" / "adult.test.gz", ["|1x3 Cross validator", test])
    return tmp_path


def test_adult_has_its_own_test_file_and_public_ranges(adult: Path) -> None:
    data = load("adult", folder=adult)
    named = dict(zip(data.names, data.X[0], strict=True))

    assert data.y.tolist() == [-1, 1, 1]
    assert [part.tolist() for part in data.split()] == [[0, 1], [2]]
    assert named["age"] == (39 - 17) / (90 - 17)
    assert named["capital-gain"] == 2174 / 99_999
    assert named["native-country=?"] == 1.0
    assert data.X[:, 6:].sum() > 0
    assert (data.bounds == [0.0, 1.0]).all()


def test_a_row_of_one_record_has_the_ranges_of_a_million(adult: Path) -> None:
    """What scaling says about a record does not depend on the others: the data's own range is not used."""
    raw = load("adult", folder=adult, scale=False)
    assert raw.bounds[raw.names.index("age")].tolist() == [17.0, 90.0]
    assert raw.X[0, raw.names.index("age")] == 39.0


def test_an_intercept_and_unit_rows(adult: Path) -> None:
    data = load("adult", folder=adult, intercept=True, unit_rows=True)
    assert data.names[-1] == "intercept"
    assert len(data.names) == data.X.shape[1] == len(data.bounds)
    np.testing.assert_allclose(np.linalg.norm(data.X, axis=1), 1.0)


def test_an_unknown_category_is_refused_where_no_column_is_its_own(adult: Path) -> None:
    _pack(adult / "adult" / "adult.data.gz", [ADULT_ROW.format(country="Atlantis", label="<=50K")])
    with pytest.raises(BadData, match="Atlantis"):
        load("adult", folder=adult)


@pytest.mark.parametrize("row", ["1, 2, 3", ADULT_ROW.format(country="?", label="50K")])
def test_a_row_of_another_format_is_refused(adult: Path, row: str) -> None:
    _pack(adult / "adult" / "adult.data.gz", [row])
    with pytest.raises(BadData, match=r"row has|label"):
        load("adult", folder=adult)


def test_bank_is_read_from_its_zip_and_clips_to_the_range(tmp_path: Path) -> None:
    rows = [
        BANK_ROW.format(balance=b, y=y) for b, y in ((2143, "no"), (900_000, "yes"), (0, "no"), (1, "no"))
    ]
    (tmp_path / "bank").mkdir()
    with zipfile.ZipFile(tmp_path / "bank" / "bank.zip", "w") as archive:
        archive.writestr("bank/bank-full.csv", "\n".join([BANK_HEADER, *rows]))
    data = load("bank", folder=tmp_path)

    assert data.y.tolist() == [-1, 1, -1, -1]
    assert data.X[1, data.names.index("balance")] == 1.0
    folds = [data.split(fold, folds=2, seed=3)[1] for fold in (0, 1)]
    assert sorted(np.concatenate(folds).tolist()) == [0, 1, 2, 3]
    assert folds[0].tolist() == data.split(0, folds=2, seed=3)[1].tolist()
    with pytest.raises(ValueError, match="fold must be"):
        data.split(2, folds=2)


def test_kdd_tells_attacks_and_gives_an_unknown_service_its_column(tmp_path: Path) -> None:
    lines = [
        KDD_ROW.format(seconds=s, service=v) + KDD_END.format(label=y)
        for s, v, y in ((0, "private", "normal."), (86_400, "newer", "smurf."))
    ]
    _pack(tmp_path / "kddcup99" / "kddcup.data_10_percent.gz", lines)
    _pack(tmp_path / "kddcup99" / "corrected.gz", lines[:1])
    data = load("kddcup99", folder=tmp_path)

    assert data.y.tolist() == [-1, 1, -1]
    assert data.X[1, data.names.index("service=(other)")] == 1.0
    assert data.X[1, data.names.index("duration")] == 1.0
    assert [len(part) for part in data.split()] == [2, 1]


IPUMS_HEADER = (
    "YEAR,AGE,FAMSIZE,NCHILD,SEX,URBAN,OWNERSHIP,MARST,NATIVITY,SCHOOL,EDATTAIN,EMPSTAT,CLASSWK,INDGEN,INCTOT"
)


def test_ipums_reads_an_extract_by_its_header(tmp_path: Path) -> None:
    row = "2010,30,4,2,1,2,1,2,1,4,3,1,2,60,"
    _pack(tmp_path / "ipums" / "br.csv.gz", [IPUMS_HEADER, f"{row}300", f"{row}301"])
    assert load("ipums-br", folder=tmp_path).y.tolist() == [-1, 1]

    _pack(tmp_path / "ipums" / "us.csv.gz", [IPUMS_HEADER.replace("MARST,", ""), row])
    with pytest.raises(BadData, match="lacks MARST"):
        load("ipums-us", folder=tmp_path)


def _idx(values: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in values.shape)
    return gzip.compress(bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes())


def test_mnist_reads_idx_files(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    for part, many in (("train", 3), ("t10k", 1)):
        images = np.full((many, 28, 28), 51)
        (tmp_path / "mnist" / f"{part}-images-idx3-ubyte.gz").write_bytes(_idx(images))
        (tmp_path / "mnist" / f"{part}-labels-idx1-ubyte.gz").write_bytes(_idx(np.arange(many)))
    data = load("mnist", folder=tmp_path)

    assert data.X.shape == (4, 784)
    assert (data.X == 0.2).all()
    assert data.y.tolist() == [0, 1, 2, 0]
    assert [len(part) for part in data.split()] == [3, 1]

    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x02\0"))
    with pytest.raises(BadData, match="1 bytes where its sizes say 2"):
        load("mnist", folder=tmp_path)


def test_letor_keeps_a_query_whole(tmp_path: Path) -> None:
    for part in range(1, 6):
        lines = [f"{part % 3} qid:{part} 1:0.5 46:1.0 #docid = G{i}" for i in range(3)]
        _pack(tmp_path / "mq2008" / f"S{part}.txt.gz", lines)
    data = load("mq2008", folder=tmp_path)

    assert data.X.shape == (15, 46)
    assert data.X[0, [0, 1, 45]].tolist() == [0.5, 0.0, 1.0]
    assert data.groups is not None
    train, test = data.split(2)
    assert len(test) == 3
    assert not set(data.groups[train]) & set(data.groups[test])

    _pack(tmp_path / "mq2008" / "S1.txt.gz", ["0 qid:1 47:1.0"])
    with pytest.raises(BadData, match="feature 47"):
        load("mq2008", folder=tmp_path)


@pytest.mark.parametrize("name", ["mq2008", "ipums-br"])
def test_data_that_nobody_fetches_is_asked_for(tmp_path: Path, name: str) -> None:
    with pytest.raises(MissingData, match="DPLEDGER_DATA"):
        load(name, folder=tmp_path)


def test_an_unknown_dataset_is_refused() -> None:
    with pytest.raises(ValueError, match="name must be one of adult"):
        load("iris")
