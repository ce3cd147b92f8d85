"""Files in and out: models (TOML, JSON, NPZ), tables of states, and atomic writes.

`load` and `save` read and write a model by the suffix of its file; `document` and `npz` are its formats, `text_table`
reads tables of texts, and `atomic_write` replaces a file completely or not at all.
"""

from evenhand.model.io.atomic_write import Location, replacing, sweep, write_atomically
from evenhand.model.io.document import as_json
from evenhand.model.io.model_file import FORMATS, Format, Loaded, is_stored, load, load_noting, save
from evenhand.model.io.npz import to_npz

__all__ = [
    "FORMATS",
    "Format",
    "Loaded",
    "Location",
    "as_json",
    "is_stored",
    "load",
    "load_noting",
    "replacing",
    "save",
    "sweep",
    "to_npz",
    "write_atomically",
]
