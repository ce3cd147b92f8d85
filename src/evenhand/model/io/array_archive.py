"""Arrays in zip archives from untrusted sources: headers are checked before unpacking, and nothing is unpickled."""

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from evenhand.checks import Faults
from evenhand.typing import Array

ARRAY_OVERHEAD = 4
"""Bytes of memory per byte of an array, while it is read and checked."""

DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
    ArithmeticError,
    EOFError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""Errors of zipfile and NumPy at an archive that is damaged, encrypted or oddly packed."""


def read_member(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    key: str,
    header_fault: Callable[[str, tuple[int, ...], np.dtype[Any]], str],
    faults: Faults,
) -> Array | None:
    """Read one array after checking its header, or add its fault and return None.

    Args:
        archive: an `.npz` file.
        member: the part of it.
        key: name of the array.
        header_fault: returns the message for an invalid shape or type; empty for a valid one.
        faults: list to which faults are added.
    """
    try:
        with archive.open(member) as stream:
            shape, dtype = _read_header(stream)
            message = "holds Python objects, which are not read" if dtype.hasobject else header_fault(key, shape, dtype)
            # A small file can promise a huge array. The header is believed only if the archive holds as many bytes.
            promised = stream.tell() + math.prod(shape) * dtype.itemsize
            if not message and promised != member.file_size:
                message = f"is damaged: it has {member.file_size} bytes where its header promises {promised}"
            if not message:
                stream.seek(0)
                return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
    except OSError:
        message = "is damaged: it is not where the archive says it is"
    except DAMAGE as error:
        message = f"is damaged: {error}"
    faults.add(key, message)
    return None


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return shape, dtype
