"""Where samebits keeps things of its own: one user folder for caches, one for state. Each has an override."""

import os
from pathlib import Path

import platformdirs


def cache_folder(*parts: str) -> Path:
    """A folder for what can be made again: $SAMEBITS_CACHE_DIR, else the user's cache folder."""
    return Path(os.environ.get("SAMEBITS_CACHE_DIR") or platformdirs.user_cache_dir("samebits"), *parts)


def state_folder(*parts: str) -> Path:
    """A folder for journals and records: $SAMEBITS_STATE_DIR, else the user's state folder."""
    return Path(os.environ.get("SAMEBITS_STATE_DIR") or platformdirs.user_state_dir("samebits"), *parts)
