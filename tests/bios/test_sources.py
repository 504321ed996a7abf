"""Every format and release: whole, in pieces, broken, and made to do harm."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow import load_bios
from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.bios.sources import open_source, unpacking
from biasbios_mlflow.bios.sources.pickles import load_plain
from tests.bios.conftest import ChunkRows

TEXTS = [
    "She paints, and sings.",
    'He said "yes", twice.\nThen he left.',
    "Her café – naïve, 日本, 😀.\r\nHis tea.",
    "Theirs, a\ttab; and 'quotes'.",
    "She is 5’ 4” = tall, -1, @home.",
]


@pytest.fixture
def frame() -> pd.DataFrame:
    """Invented bios with all that a cell can hold, and a column more."""
    n = 400
    return pd.DataFrame(
        {
            "hard_text": [f"{TEXTS[i % len(TEXTS)]} {i}" for i in range(n)],
            "profession": [OCCUPATIONS[i % 28] for i in range(n)],
            "gender": ["male" if i % 3 else "female" for i in range(n)],
            "year": [1950 + i for i in range(n)],
        }
    )


WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, sep="\t", index=False),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "parquet": lambda frame, path: frame.to_parquet(path, row_group_size=70),
    "pq": lambda frame, path: frame.to_parquet(path),
}


def assert_fails(path: Any, says: str, **options: Any) -> str:
    with pytest.raises(MlflowException, match=says) as caught:
        load_bios(path, **options)
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"
    return str(caught.value)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("suffix", WRITERS)
class TestRoundTrip:
    def test_all_and_in_chunks(
        self,
        suffix: str,
        packed: bool,
        frame: pd.DataFrame,
        tmp_path: Path,
        small_chunks: None,
    ) -> None:
        path = tmp_path / f"some.bios.{suffix}"
        WRITERS[suffix](frame, path)
        if packed:
            content = path.read_bytes()
            path = path.with_name(path.name + ".gz")
            path.write_bytes(gzip.compress(content))
        opened = open_source(path)
        assert (opened.name, opened.where) == ("some.bios", str(path))
        assert opened.columns == list(frame.columns)
        for _ in range(2):
            chunks = list(opened.chunks())
            assert len(chunks) > 6
            assert [i for chunk in chunks for i in chunk.index] == list(range(len(frame)))
            again = pd.concat(chunks)
            pd.testing.assert_frame_equal(again, frame, check_column_type=False)
        dataset = load_bios(path)
        pd.testing.assert_frame_equal(dataset.df, frame.astype({"profession": str, "gender": str}))
        assert dataset.targets == "profession"


class TestSeparated:
    def test_byte_order_mark_and_line_ends(self, tmp_path: Path) -> None:
        rows = '﻿bio,sex,occupation\r\n"She sings,\r\nand he\n""acts"".",F,nurse\r\n\r\n'
        rows += "He acts.,M,poet\r\n"
        (tmp_path / "windows.csv").write_bytes(rows.encode())
        found = load_bios(tmp_path / "windows.csv").df
        assert found["hard_text"].tolist() == ['She sings,\r\nand he\n"acts".', "He acts."]
        assert found["profession"].tolist() == ["nurse", "poet"]

    def test_byte_order_mark_in_lines(self, tmp_path: Path) -> None:
        rows = '﻿{"bio": "She sings.\\n", "g": "f", "p": 13}\r\n\r\n{"bio": "He acts.", "g": "m"}'
        (tmp_path / "windows.jsonl").write_bytes(rows.encode())
        found = load_bios(tmp_path / "windows.jsonl").df
        assert found["hard_text"].tolist() == ["She sings.\n", "He acts."]
        assert found["profession"].isna().tolist() == [False, True]
        assert found["profession"][0] == "nurse"

    def test_a_cell_of_ten_megabytes(self, tmp_path: Path) -> None:
        long = "She sings. " * 1_000_000
        frame = pd.DataFrame(
            {"hard_text": ["He.", long, "She."], "profession": "dj", "gender": ["M", "F", "F"]}
        )
        for suffix in ("csv", "jsonl", "parquet"):
            path = tmp_path / f"long.{suffix}"
            WRITERS[suffix](frame, path)
            assert load_bios(path).df["hard_text"].tolist() == ["He.", long, "She."]

    def test_long_cells_make_short_chunks(self, tmp_path: Path) -> None:
        path = tmp_path / "long.csv"
        row = f'"{"She sings. " * 100_000}",dj,F\n'
        path.write_text("bio,occupation,sex\n" + row * 40)
        sizes = [len(chunk) for chunk in open_source(path).chunks()]
        assert sum(sizes) == 40
        assert sizes[1:-1] == [7] * len(sizes[1:-1])  # 8 MiB

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (b"", "EmptyDataError"),
            (b"bio,occupation,sex\n", "found no rows"),
            (b'bio,occupation,sex\n"He acts.,poet,M\n', "EOF inside string"),
            (b"bio,occupation,sex\nShe, too,poet,F\n" * 2, "more cells than the header"),
            (b"bio,occupation,sex\nHe.,poet,M\nShe,is,late,F\n", "Expected 3 fields in line 3"),
            ("bio,occupation,sex\nCafé,poet,F\n".encode("latin-1"), "UnicodeDecodeError.*UTF-8"),
            ("bio,occupation,sex\nShe.,poet,F\n".encode("utf-16"), "UnicodeDecodeError.*UTF-8"),
            (b"\x89PNG\r\n\x1a\n\x00\x00", "data file bad.csv"),
            (b"bio;occupation;sex\nShe.;poet;F\n", "none of the usual columns"),
        ],
        ids=[
            "empty",
            "header",
            "quote",
            "comma",
            "ragged",
            "latin",
            "utf16",
            "image",
            "semicolons",
        ],
    )
    def test_broken(self, content: bytes, says: str, tmp_path: Path) -> None:
        (tmp_path / "bad.csv").write_bytes(content)
        assert_fails(tmp_path / "bad.csv", says)

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (b"", "none of the usual columns"),
            (b'{"bio": "He", "p": 1, "g": 0}\n{"bio": "Sh', "JSONDecodeError|line 2"),
            (b'{"bio": "He", "p": 1, "g": 0}\n["She", 1, 1]\n', "line 2 is no object"),
            (b'{"bio": "\xe9", "p": 1, "g": 0}\n', "line 1.*UTF-8"),
            (b'[{"bio": "He", "p": 1, "g": 0}]', "line 1 is no object"),
        ],
        ids=["empty", "truncated", "list", "latin", "array"],
    )
    def test_broken_lines(self, content: bytes, says: str, tmp_path: Path) -> None:
        (tmp_path / "bad.jsonl").write_bytes(content)
        assert_fails(tmp_path / "bad.jsonl", says)

    @pytest.mark.parametrize("spoil", [lambda d: d[:-20], lambda d: d[:200], lambda d: b"bio,p,g"])
    def test_broken_parquet(
        self, spoil: Callable[[bytes], bytes], frame: pd.DataFrame, tmp_path: Path
    ) -> None:
        frame.to_parquet(tmp_path / "bad.parquet")
        (tmp_path / "bad.parquet").write_bytes(spoil((tmp_path / "bad.parquet").read_bytes()))
        assert_fails(tmp_path / "bad.parquet", "data file bad.parquet.*readable .parquet file")

    def test_mixed_types(self, tmp_path: Path) -> None:
        """Ids and names of occupations, spellings of genders, side by side."""
        lines = [
            {"bio": "He.", "profession": 13, "gender": 0},
            {"bio": "She.", "profession": "Yoga Teacher", "gender": "F"},
            {"bio": "She.", "profession": "13", "gender": 1.0},
            {"bio": "He.", "profession": "LABEL_0", "gender": "male"},
        ]
        (tmp_path / "mixed.jsonl").write_text("\n".join(map(json.dumps, lines)))
        found = load_bios(tmp_path / "mixed.jsonl").df
        assert found["profession"].tolist() == ["nurse", "yoga_teacher", "nurse", "accountant"]
        assert found["gender"].tolist() == ["male", "female", "female", "male"]
        lines[2]["bio"] = 7
        (tmp_path / "mixed.jsonl").write_text("\n".join(map(json.dumps, lines)))
        assert_fails(tmp_path / "mixed.jsonl", "row 2: found int 7, expected a text")

    def test_a_key_that_comes_late(self, tmp_path: Path, chunk_rows: ChunkRows) -> None:
        chunk_rows(10)
        lines = [{"bio": f"He {i}.", "p": 1, "g": 0} for i in range(30)]
        lines[25]["note"] = "late"
        (tmp_path / "late.jsonl").write_text("\n".join(map(json.dumps, lines)))
        opened = open_source(tmp_path / "late.jsonl")
        whole = opened.read()
        assert list(whole.columns) == ["bio", "p", "g", "note"]
        assert whole["note"].notna().tolist() == [i == 25 for i in range(30)]
        assert {tuple(chunk.columns) for chunk in opened.chunks()} == {("bio", "p", "g", "note")}


class TestPacked:
    def packed(self, frame: pd.DataFrame) -> bytes:
        return gzip.compress(frame.to_csv(index=False).encode())

    @pytest.mark.parametrize(
        ("spoil", "says"),
        [
            (lambda data: data[:-9], "EOFError"),
            (lambda data: data[: len(data) // 2], "EOFError"),
            (lambda data: data[:-8] + b"\0\0\0\0" + data[-4:], "CRC check failed"),
            (lambda data: data + b"tail", "Not a gzipped file"),
            (lambda data: b"bio,occupation,sex\n", "Not a gzipped file"),
            (lambda data: data[:40] + bytes(40) + data[80:], "data file bad.csv.gz"),
        ],
        ids=["tail", "half", "crc", "trailing", "plain", "middle"],
    )
    def test_broken(
        self, spoil: Callable[[bytes], bytes], says: str, frame: pd.DataFrame, tmp_path: Path
    ) -> None:
        (tmp_path / "bad.csv.gz").write_bytes(spoil(self.packed(frame)))
        assert_fails(tmp_path / "bad.csv.gz", says)

    def test_in_several_members(self, frame: pd.DataFrame, tmp_path: Path) -> None:
        whole = frame.to_csv(index=False).encode()
        (tmp_path / "two.csv.gz").write_bytes(
            gzip.compress(whole[:1000]) + gzip.compress(whole[1000:])
        )
        assert load_bios(tmp_path / "two.csv.gz").df["hard_text"].tolist() == list(
            frame["hard_text"]
        )

    @pytest.mark.parametrize("suffix", ["csv", "jsonl", "pkl", "parquet"])
    def test_bomb(self, suffix: str, tmp_path: Path) -> None:
        """A file of 130 KB that unpacks to 128 MB: half of it is read, and no more."""
        head = {
            "csv": b'bio,occupation,sex\n"',
            "jsonl": b'{"bio": "',
            "pkl": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 27),
            "parquet": b"PAR1",
        }
        path = tmp_path / f"bomb.{suffix}.gz"
        path.write_bytes(gzip.compress(head[suffix]) + gzip.compress(b"a" * (1 << 24)) * 8)
        tracemalloc.start()
        says = assert_fails(path, "unpacks to less than 100 times")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert "found 64 MiB" in says or "found 65 MiB" in says
        assert peak < 3 * unpacking._FREE


def bios_pkl() -> list[dict[str, Any]]:
    """Invented bios as microsoft/biosbias writes them."""
    rows = []
    for i, title in enumerate(["nurse", "yoga_teacher", "software_engineer"] * 40):
        first = f"Person {i} is a {title}. "
        rows.append(
            {
                "raw": f"{first}{'She' if i % 2 else 'He'} works in place {i}.",
                "raw_title": title.replace("_", " ").title(),
                "title": title,
                "start_pos": len(first),
                "gender": "F" if i % 2 else "M",
                "name": ("Person", "", str(i)),
                "path": f"crawl/{i}",
                "URI": f"https://host.example/{i}",
                "bio": f"_ works in place {i}.",
            }
        )
    return rows


def ravfogel(text_key: str) -> list[dict[str, Any]]:
    """The same as the release by Ravfogel et al. has them."""
    rows = []
    for bio in bios_pkl():
        hard = bio["raw"][bio["start_pos"] :]
        row = {
            "g": bio["gender"].lower(),
            "p": bio["title"],
            "text": bio["raw"],
            "start": bio["start_pos"],
            "hard_text": hard.replace(".", " ."),
            "text_without_gender": bio["bio"],
        }
        if text_key == "hard_text":
            row["hard_text"] = hard
        elif text_key == "hard_text_untokenized":
            row["hard_text_untokenized"] = hard
        else:
            del row["hard_text"]
        rows.append(row)
    return rows


EXPECTED = {
    "hard_text": [f"{'She' if i % 2 else 'He'} works in place {i}." for i in range(120)],
    "profession": ["nurse", "yoga_teacher", "software_engineer"] * 40,
    "gender": ["male", "female"] * 60,
}


class Runs:
    """Runs a command when it is unpickled by an unpickler that lets it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


class TestPickles:
    @pytest.mark.parametrize("protocol", range(6))
    @pytest.mark.parametrize("layout", ["raw", "hard_text", "hard_text_untokenized", "start"])
    def test_releases(self, layout: str, protocol: int, tmp_path: Path) -> None:
        rows = bios_pkl() if layout == "raw" else ravfogel(layout)
        path = tmp_path / ("BIOS.pkl" if layout == "raw" else "some.pickle.gz")
        data = pickle.dumps(rows, protocol)
        path.write_bytes(data if layout == "raw" else gzip.compress(data))
        dataset = load_bios(path)
        # Whole text, name and title stay behind: they tell what no model may know.
        assert dataset.df.drop(columns="split", errors="ignore").to_dict("list") == EXPECTED

    @pytest.mark.parametrize("protocol", range(6))
    def test_numbers_of_numpy(self, protocol: int) -> None:
        values = [
            *(np.int64(-5), np.int32(7), np.uint8(200), np.float64(0.1), np.float32(0.5)),
            *(np.bool_(True), np.str_("né"), np.bytes_(b"x"), np.dtype(">i4").type(3)),
            np.frombuffer(b"\0\0\1\2", ">i4")[0],
        ]
        loaded = load_plain(io.BytesIO(pickle.dumps(values, protocol)), "numbers.pkl")
        assert loaded == [value.item() for value in values]
        assert {type(value) for value in loaded} <= {int, float, bool, str, bytes}

    def test_plain_data_comes_back(self) -> None:
        shared = ["a", "é", 5, 2**70, -1.5, None, True, (1, (2, 3, 4, 5)), {"x": {1, 2}}, b"\xff"]
        value = [shared, shared, frozenset([3])]
        for protocol in range(6):
            loaded = load_plain(io.BytesIO(pickle.dumps(value, protocol)), "plain.pkl")
            assert loaded == value
            assert loaded[0] is loaded[1]

    @pytest.mark.parametrize("protocol", range(6))
    def test_code_is_refused_and_not_run(self, protocol: int, tmp_path: Path) -> None:
        marker = tmp_path / "ran"
        rows = [*bios_pkl(), {"raw": Runs(marker)}]
        data = pickle.dumps(rows, protocol)
        (tmp_path / "BIOS.pkl").write_bytes(data)
        assert_fails(tmp_path / "BIOS.pkl", r"posix\.system, which is not plain data")
        assert not marker.exists()
        pickle.loads(data)  # the attack itself works
        assert marker.exists()

    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (pickle.dumps(pd.DataFrame({"a": [1]})), r"pandas\."),
            (pickle.dumps([{"raw": Path("x")}]), r"pathlib\."),
            (b"cbuiltins\neval\n(S'1'\ntR.", r"builtins\.eval"),
            (b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93\x8c\x011\x85R.", r"builtins\.exec"),
            # Attributes set on what builds numbers, through which later files would run.
            (b"cnumpy\ndtype\n}S'x'\nI1\nsb.", "BUILD"),
            (b"c_codecs\nencode\n(N}S'__defaults__'\n)stb.", "BUILD"),
            (b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(S'O8'\ntRNtR.", "numpy value"),
            (b"\x80\x02\x82\x01.", "EXT1"),
            (b"\x80\x04Pid\n.", "PERSID"),
            (b"(S'x'\nios\nsystem\n.", "INST"),
            (b"\x80\x05\x96" + struct.pack("<Q", 1 << 50) + b".", "BYTEARRAY8"),
        ],
        ids=[
            "frame",
            "path",
            "eval",
            "exec",
            "build",
            "defaults",
            "object",
            "ext",
            "persid",
            "inst",
            "bytearray",
        ],
    )
    def test_all_else_is_refused_with_its_name(
        self, data: bytes, says: str, tmp_path: Path
    ) -> None:
        (tmp_path / "BIOS.pkl").write_bytes(data)
        assert_fails(tmp_path / "BIOS.pkl", says)

    @pytest.mark.parametrize(
        "data",
        [
            b"]r\xff\xff\xff\x7f.",  # a memo of two billion places
            b"]p99999999999\n.",
            b"\x80\x04\x95" + struct.pack("<Q", 1 << 60) + b"].",  # a frame of an exabyte
            b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"a.",
            b"\x80\x04\x8e" + struct.pack("<Q", 1 << 45) + b"a.",
            b"T\xff\xff\xff\x7fabc.",
            # a list of lists of lists, each ten times the one before
            b"]" + b"q\x00]" + b"h\x00" * 0 + b"(" + b"h\x00" * 10 + b"e.",
        ],
        ids=["memo", "put", "frame", "unicode", "bytes", "string", "nested"],
    )
    def test_small_files_take_little_memory(self, data: bytes, tmp_path: Path) -> None:
        (tmp_path / "BIOS.pkl").write_bytes(data)
        tracemalloc.start()
        assert_fails(tmp_path / "BIOS.pkl", "data file BIOS.pkl")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 50 << 20

    @pytest.mark.parametrize("cut", [0, 1, 10, 1000, -1])
    def test_truncated(self, cut: int, tmp_path: Path) -> None:
        (tmp_path / "BIOS.pkl").write_bytes(pickle.dumps(bios_pkl())[:cut])
        assert_fails(tmp_path / "BIOS.pkl", "whole pickle")

    @pytest.mark.parametrize(
        ("value", "says"),
        [
            ({"raw": 1}, "found a dict"),
            ([], r"the keys \[\]"),
            ([1, 2], "other things than dicts"),
            ([{"text": "He.", "label": 1}], r"the keys \['label', 'text'\]"),
            ([{"raw": 5, "start_pos": "x", "title": "dj", "gender": "M"}], "1 without text"),
        ],
        ids=["dict", "empty", "numbers", "keys", "values"],
    )
    def test_other_layouts(self, value: Any, says: str, tmp_path: Path) -> None:
        (tmp_path / "BIOS.pkl").write_bytes(pickle.dumps(value))
        assert_fails(tmp_path / "BIOS.pkl", says)
