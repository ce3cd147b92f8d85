"""Files in and out: models (TOML, JSON, NPZ), tables of states, and atomic writes.

`load` and `save` read and write a model by the suffix of its file; `document` and `npz` are its formats, `text_table`
reads tables of texts, and `atomic_write` replaces a file completely or not at all.
"""

from evenhand.model.io.document import as_json
from evenhand.model.io.model_file import (
    FORMATS,
    Format,
    Loaded,
    Location,
    is_stored,
    load,
    load_noting,
    replacing,
    replacing_folder,
    save,
    write_atomically,
)
from evenhand.model.io.npz import to_npz
