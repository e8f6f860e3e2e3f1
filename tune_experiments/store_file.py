"""The sqlite file of a tracking URI: says before any work is done whether a database can be opened or made there."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path


def store_file_problem(database: Path) -> str:
    """Return why no sqlite database can be opened or made at this absolute path; "" when one can. Makes nothing."""
    if database.is_dir():
        return "is a directory"
    try:
        if database.exists():
            with closing(sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True)) as connection:
                connection.execute("SELECT name FROM sqlite_master").fetchone()
            return "" if os.access(database, os.W_OK) else "cannot be written"
    except sqlite3.OperationalError as error:
        return "" if "locked" in str(error) else f"cannot be opened ({error})"
    except (sqlite3.Error, OSError) as error:
        return f"cannot be opened ({error})"
    nearest = next((folder for folder in database.parents if folder.exists()), Path("/"))
    if not nearest.is_dir():
        return f"cannot be made: {nearest} is not a directory"
    return "" if os.access(nearest, os.W_OK | os.X_OK) else f"cannot be made: {nearest} cannot be written"
