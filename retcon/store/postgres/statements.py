"""SQLite's words -> PostgreSQL's, for the statements that both stores share; each is turned once."""

from __future__ import annotations

import re
from functools import lru_cache

from retcon.store.database import IN

_NEW = ", ".join(f"{column} = excluded.{column}" for column in ("df", "peak", "low", "tail"))
_POSTING = f"ON CONFLICT (scope, term) DO UPDATE SET {_NEW}"
_NAMED = re.compile(r"(?<!:):([a-z]+)")


@lru_cache(maxsize=4096)
def to_postgres(sql: str) -> str:
    """The statement as PostgreSQL takes it, with psycopg's marks for values."""
    out = sql.replace("%", "%%").replace(IN, "= ANY(%s)").replace("?", "%s")
    out = _NAMED.sub(r"%(\1)s", out).replace("CROSS JOIN", "JOIN").replace(" INDEXED BY doc_long", "")
    if "INSERT OR IGNORE" in out:
        out = out.replace("INSERT OR IGNORE", "INSERT") + " ON CONFLICT DO NOTHING"
    if "INSERT OR REPLACE INTO posting" in out:
        out = out.replace("INSERT OR REPLACE INTO posting", "INSERT INTO posting") + f" {_POSTING}"
    return out
