"""LanceDB: its full text index, and vectors without an index (exact); a scalar index on the user for the filter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.rivals.speed.stores import TOP, Found, Note


class Words:
    """A table with a full text index, as it comes (stemming, positions off)."""

    batch = 50_000

    def __init__(self, folder: Path, encode: Any) -> None:
        import lancedb
        import pyarrow as pa

        self.pa, self.encode, self.db = pa, encode, lancedb.connect(str(folder / "lance"))
        self.table = self.db.create_table("notes", schema=self.schema())

    def schema(self) -> Any:
        """The columns."""
        return self.pa.schema([(name, self.pa.string()) for name in ("id", "user", "text")])

    def rows(self, notes: Sequence[Note]) -> Any:
        """The notes as columns."""
        columns = {name: [note[name] for note in notes] for name in ("id", "user", "text")}
        return self.pa.table(columns, schema=self.schema())

    def add(self, notes: Sequence[Note]) -> None:
        self.table.add(self.rows(notes))

    def finish(self) -> None:
        self.table.create_scalar_index("user", index_type="BITMAP")
        self.index()

    def index(self) -> None:
        """The index over the texts."""
        self.table.create_fts_index("text")

    def add_one(self, note: Note) -> None:
        self.add([note])

    def query(self, query: str) -> Any:
        """A search that is still to be narrowed."""
        return self.table.search(query, query_type="fts")

    def search(self, query: str, user: str) -> Sequence[Found]:
        found = self.query(query).where(f"user = '{user}'", prefilter=True).select(["user", "text"]).limit(TOP)
        return [Found(row["user"], row["text"]) for row in found.to_arrow().to_pylist()]

    def close(self) -> None:
        """Nothing is held."""


class Vectors(Words):
    """A table with a vector a row."""

    def schema(self) -> Any:
        return super().schema().append(self.pa.field("vector", self.pa.list_(self.pa.float32(), self.encode.dim)))

    def rows(self, notes: Sequence[Note]) -> Any:
        texts = [note["text"] for note in notes]
        flat = self.pa.FixedSizeListArray.from_arrays(self.pa.array(self.encode(texts).reshape(-1)), self.encode.dim)
        columns: dict[str, Any] = {name: [note[name] for note in notes] for name in ("id", "user", "text")}
        return self.pa.table(columns | {"vector": flat}, schema=self.schema())

    def index(self) -> None:
        """None: the search is exact."""

    def query(self, query: str) -> Any:
        return self.table.search(self.encode([query])[0]).distance_type("cosine")
