"""Adult, Bank, KDD Cup 99 and IPUMS: tables with numbers and categories.

Ranges and lists are those of the datasets' own documentation (``adult.names``, ``bank-names.txt``,
``kddcup.names`` with the task description, IPUMS International's codebook) and of the surveys' top-codes;
where a documentation gives a number no range, a round one beyond which a value is clipped. Labels are -1
and 1.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from benchmarks.datasets.columns import BadData, Categorical, Column, Numeric, Options, encode
from benchmarks.datasets.dataset import Dataset
from benchmarks.datasets.sources import MissingData, fetch, find, read_lines

__all__ = ["load_adult", "load_bank", "load_ipums", "load_kddcup99"]

Folder = str | os.PathLike[str] | None
Rows = list[list[str]]

# adult.names; ages are top-coded at 90 and gains at 99,999, hours have two digits. "?" is an unknown value.
_COUNTRIES = (
    "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India Japan Greece "
    "South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico Portugal Ireland France "
    "Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala Nicaragua Scotland Thailand "
    "Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands ?"
)
_OCCUPATIONS = (
    "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
    "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv "
    "Armed-Forces ?"
)
_EDUCATION = (
    "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters 1st-4th "
    "10th Doctorate 5th-6th Preschool"
)


def _one_of(name: str, words: str, *, other: bool = False) -> Categorical:
    return Categorical(name, tuple(words.split()), other)


ADULT: tuple[Column, ...] = (
    Numeric("age", 17, 90),
    _one_of(
        "workclass",
        "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked ?",
    ),
    Numeric("fnlwgt", 0, 1_500_000),
    _one_of("education", _EDUCATION),
    Numeric("education-num", 1, 16),
    _one_of(
        "marital-status",
        "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse",
    ),
    _one_of("occupation", _OCCUPATIONS),
    _one_of("relationship", "Wife Own-child Husband Not-in-family Other-relative Unmarried"),
    _one_of("race", "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
    _one_of("sex", "Female Male"),
    Numeric("capital-gain", 0, 99_999),
    Numeric("capital-loss", 0, 5_000),
    Numeric("hours-per-week", 1, 99),
    _one_of("native-country", _COUNTRIES),
)

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec"
_JOBS = (
    "admin. unknown unemployed management housemaid entrepreneur student blue-collar self-employed retired "
    "technician services"
)
BANK: tuple[Column, ...] = (
    Numeric("age", 18, 100),
    _one_of("job", _JOBS),
    _one_of("marital", "married divorced single"),
    _one_of("education", "unknown secondary primary tertiary"),
    _one_of("default", "yes no"),
    Numeric("balance", -10_000, 100_000),
    _one_of("housing", "yes no"),
    _one_of("loan", "yes no"),
    _one_of("contact", "unknown telephone cellular"),
    Numeric("day", 1, 31),
    _one_of("month", _MONTHS),
    Numeric("duration", 0, 3_600),
    Numeric("campaign", 1, 50),
    Numeric("pdays", -1, 999),
    Numeric("previous", 0, 50),
    _one_of("poutcome", "unknown other failure success"),
)

# Bytes and seconds span nine orders of magnitude: on a linear scale of their range nearly all would be 0.
_SERVICES = (
    "aol auth bgp courier csnet_ns ctf daytime discard domain domain_u echo eco_i ecr_i efs exec finger ftp "
    "ftp_data gopher harvest hostnames http http_2784 http_443 http_8001 icmp imap4 IRC iso_tsap klogin "
    "kshell ldap link login mtp name netbios_dgm netbios_ns netbios_ssn netstat nnsp nntp ntp_u other "
    "pm_dump pop_2 pop_3 printer private red_i remote_job rje shell smtp sql_net ssh sunrpc supdup systat "
    "telnet tftp_u tim_i time urh_i urp_i uucp uucp_path vmnet whois X11 Z39_50"
)
# kddcup.names gives flags as 0 or 1 and counts no range: theirs are round, and clip.
_COUNTS = (
    ("wrong_fragment", 10),
    ("urgent", 10),
    ("hot", 100),
    ("num_failed_logins", 10),
    ("logged_in", 1),
    ("num_compromised", 1_000),
    ("root_shell", 1),
    ("su_attempted", 1),
    ("num_root", 1_000),
    ("num_file_creations", 100),
    ("num_shells", 10),
    ("num_access_files", 10),
    ("num_outbound_cmds", 1),
    ("is_host_login", 1),
    ("is_guest_login", 1),
    ("count", 500),
    ("srv_count", 500),
)
_RATES = (
    "serror_rate srv_serror_rate rerror_rate srv_rerror_rate same_srv_rate diff_srv_rate srv_diff_host_rate"
)
_HOST_RATES = (
    "same_srv_rate diff_srv_rate same_src_port_rate srv_diff_host_rate serror_rate srv_serror_rate "
    "rerror_rate srv_rerror_rate"
)
KDD: tuple[Column, ...] = (
    Numeric("duration", 0, 86_400, logarithmic=True),
    _one_of("protocol_type", "tcp udp icmp"),
    _one_of("service", _SERVICES, other=True),
    _one_of("flag", "OTH REJ RSTO RSTOS0 RSTR S0 S1 S2 S3 SF SH"),
    Numeric("src_bytes", 0, 1e9, logarithmic=True),
    Numeric("dst_bytes", 0, 1e9, logarithmic=True),
    _one_of("land", "0 1"),
    *(Numeric(name, 0, high) for name, high in _COUNTS),
    *(Numeric(name, 0, 1) for name in _RATES.split()),
    Numeric("dst_host_count", 0, 250),
    Numeric("dst_host_srv_count", 0, 250),
    *(Numeric(f"dst_host_{name}", 0, 1) for name in _HOST_RATES.split()),
)
NORMAL = "normal."

IPUMS: tuple[Column, ...] = (
    Numeric("AGE", 0, 100),
    Numeric("FAMSIZE", 1, 30),
    Numeric("NCHILD", 0, 9),
    _one_of("SEX", "1 2", other=True),
    _one_of("URBAN", "1 2", other=True),
    _one_of("OWNERSHIP", "0 1 2", other=True),
    _one_of("MARST", "0 1 2 3 4", other=True),
    _one_of("NATIVITY", "0 1 2", other=True),
    _one_of("SCHOOL", "0 1 2 3 4", other=True),
    _one_of("EDATTAIN", "0 1 2 3 4", other=True),
    _one_of("EMPSTAT", "0 1 2 3", other=True),
    _one_of("CLASSWK", "0 1 2 3 4", other=True),
    _one_of("INDGEN", "0 10 20 30 40 50 60 70 80 90 100 110 111 112 113 114 120 130", other=True),
)
IPUMS_INCOME = "INCTOT"


def _labelled(
    rows: Iterable[list[str]], width: int, positive: Sequence[str], negative: Sequence[str]
) -> tuple[Rows, list[int]]:
    """Rows without their last value, and the label that it stands for; an empty ``negative`` is any other."""
    features, labels = [], []
    for row in rows:
        if len(row) != width + 1:
            raise BadData(f"a row has {len(row)} values, not {width + 1}: {row}")
        if row[-1] not in positive and negative and row[-1] not in negative:
            raise BadData(f"the label {row[-1]!r} is neither {' nor '.join([*positive, *negative])}")
        features.append(row[:-1])
        labels.append(1 if row[-1] in positive else -1)
    return features, labels


def _dataset(
    name: str,
    columns: Sequence[Column],
    labelled: tuple[Rows, list[int]],
    options: Options,
    test_rows: int | None = None,
) -> Dataset:
    """The dataset of labelled rows, of which the last ``test_rows`` are its own test file's."""
    rows, labels = labelled
    X, names, bounds = encode(columns, rows, options)
    held_out = None if test_rows is None else np.arange(len(X)) >= len(X) - test_rows
    return Dataset(name, X, np.array(labels), names, bounds, (-1, 1), held_out)


def _openml(name: str, version: int, advice: str) -> Rows:
    """The rows of an OpenML table, in the text that a raw file would have."""

    def download() -> Rows:
        from sklearn.datasets import fetch_openml

        frame = fetch_openml(name, version=version, as_frame=True, parser="auto").frame
        return [
            ["?" if value != value else str(value) for value in row] for row in frame.itertuples(index=False)
        ]

    found: Rows = fetch(download, advice)
    return found


ADULT_ADVICE = (
    "fetch adult.data and adult.test of UCI's Adult (id 2) into $DPLEDGER_DATA/adult, gzipped or not"
)


def load_adult(folder: Folder = None, options: Options | None = None) -> Dataset:
    """UCI Adult: whether an income is above 50,000; 48,842 rows, of which 16,281 are its test file."""
    files = [find(folder, f"adult/{name}") for name in ("adult.data", "adult.test")]
    if files[0] is None or files[1] is None:
        # Merged there in an order that is not documented, so that it has no test file.
        rows, test = _openml("adult", 2, ADULT_ADVICE), None
    else:
        parts = [
            [_comma(line) for line in read_lines(file) if not line.startswith("|")] for file in files if file
        ]
        rows, test = parts[0] + parts[1], len(parts[1])
    rows = [[*row[:-1], row[-1].removesuffix(".")] for row in rows]
    labelled = _labelled(rows, len(ADULT), [">50K"], ["<=50K"])
    return _dataset("adult", ADULT, labelled, options or Options(), test)


def _comma(line: str) -> list[str]:
    return [value.strip() for value in line.split(",")]


BANK_ADVICE = (
    "fetch bank.zip (bank-full.csv) of the UCI dataset Bank Marketing (id 222) into $DPLEDGER_DATA/bank"
)


def load_bank(folder: Folder = None, options: Options | None = None) -> Dataset:
    """UCI Bank marketing: whether a client subscribed; 45,211 rows without a test file."""
    archive, plain = find(folder, "bank/bank.zip"), find(folder, "bank/bank-full.csv")
    if plain is not None or archive is not None:
        lines = list(_bank_lines(plain, archive))
        rows = [[value.strip('"') for value in line.split(";")] for line in lines[1:]]
    else:
        rows = [
            [*row[:-1], {"1": "no", "2": "yes"}.get(row[-1], row[-1])]
            for row in _openml("bank-marketing", 1, BANK_ADVICE)
        ]
    return _dataset("bank", BANK, _labelled(rows, len(BANK), ["yes"], ["no"]), options or Options())


def _bank_lines(plain: Path | None, archive: Path | None) -> Iterator[str]:
    if plain is not None:
        yield from read_lines(plain)
    elif archive is not None:
        yield from read_lines(archive, "bank/bank-full.csv")


KDD_ADVICE = (
    "fetch kddcup.data_10_percent.gz and corrected.gz of the KDD Cup 1999 data (UCI id 130) into "
    "$DPLEDGER_DATA/kddcup99"
)


def load_kddcup99(folder: Folder = None, options: Options | None = None) -> Dataset:
    """KDD Cup 1999, the 10 % file and its test file: whether a connection is an attack."""
    files = [find(folder, f"kddcup99/{name}") for name in ("kddcup.data_10_percent", "corrected")]
    if files[0] is None or files[1] is None:
        rows, test = _fetch_kddcup99(), None
    else:
        parts = [[line.split(",") for line in read_lines(file)] for file in files if file]
        rows, test = list(chain.from_iterable(parts)), len(parts[1])
    features, labels = _labelled(rows, len(KDD), [NORMAL], [])
    return _dataset("kddcup99", KDD, (features, [-label for label in labels]), options or Options(), test)


def _fetch_kddcup99() -> Rows:
    def download() -> Rows:
        from sklearn.datasets import fetch_kddcup99

        found = fetch_kddcup99(percent10=True)
        whole = np.column_stack([found.data, found.target])
        return [[v.decode() if isinstance(v, bytes) else str(v) for v in row] for row in whole]

    rows: Rows = fetch(download, KDD_ADVICE)
    return rows


def load_ipums(
    folder: Folder = None, options: Options | None = None, *, extract: str = "br", income: float = 300.0
) -> Dataset:
    """An extract of IPUMS International: whether ``INCTOT`` is above ``income``.

    IPUMS lets nobody pass its data on, so an extract is asked for by whoever uses it; it has a header line
    and may have more columns than are read.
    """
    needed = [column.name for column in IPUMS]
    file = find(folder, f"ipums/{extract}.csv")
    if file is None:
        raise MissingData(
            f"make an extract of IPUMS International as CSV with {', '.join([*needed, IPUMS_INCOME])}, put "
            f"it into $DPLEDGER_DATA/ipums/{extract}.csv.gz; IPUMS lets nobody pass it on"
        )
    lines = read_lines(file)
    header = [name.strip('"') for name in _comma(next(lines))]
    if absent := [name for name in (*needed, IPUMS_INCOME) if name not in header]:
        raise BadData(f"{file} lacks {', '.join(absent)}")
    places = [header.index(name) for name in needed]
    whole = [[value.strip('"') for value in _comma(line)] for line in lines]
    if any(len(row) != len(header) for row in whole):
        raise BadData(f"{file} has a row that does not have {len(header)} values")
    incomes = Numeric(IPUMS_INCOME, -1e9, 1e9).read([row[header.index(IPUMS_INCOME)] for row in whole])
    labels = np.where(incomes > income, 1, -1).tolist()
    rows = [[row[place] for place in places] for row in whole]
    return _dataset(f"ipums-{extract}", IPUMS, (rows, labels), options or Options())
