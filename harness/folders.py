"""Where things lie: what samebits ships, and the user folders for caches, state and configuration (each has an override)."""

import os
from pathlib import Path

import platformdirs


def cache_folder(*parts: str) -> Path:
    """A folder for what can be made again: $SAMEBITS_CACHE_DIR, else the user's cache folder."""
    return Path(os.environ.get("SAMEBITS_CACHE_DIR") or platformdirs.user_cache_dir("samebits"), *parts)


def state_folder(*parts: str) -> Path:
    """A folder for journals and records: $SAMEBITS_STATE_DIR, else the user's state folder."""
    return Path(os.environ.get("SAMEBITS_STATE_DIR") or platformdirs.user_state_dir("samebits"), *parts)


def config_folder(*parts: str) -> Path:
    """A folder for what a user writes: the user's configuration folder. Each file in it has a variable of its own."""
    return Path(platformdirs.user_config_dir("samebits"), *parts)


def data_root() -> Path:
    """Where kernel sources and goldens lie: inside the installed package, or in the checkout (editable install)."""
    packaged = Path(__file__).parent / "_data"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent


def golden_root() -> Path:
    """Where the golden digests of the presets lie."""
    root = data_root()
    return root / "golden" if root.name == "_data" else root / "matrices" / "golden"


def expectations_root() -> Path:
    """Where the expectations that samebits ships lie."""
    root = data_root()
    return root / "expectations" if root.name == "_data" else root / "matrices" / "expectations"


def profiles_root() -> Path:
    """Where the documents of the profiles and their canonical forms lie."""
    root = data_root()
    return root / "profiles" if root.name == "_data" else root / "docs" / "profiles"


def data_file(name: str) -> Path:
    """A data file that cases read (`tests/data` in the checkout)."""
    root = data_root()
    return (root / "data" if root.name == "_data" else root / "tests" / "data") / name
