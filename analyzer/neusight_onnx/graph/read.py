"""Reads an ONNX file into a :class:`Model`: the graph, not the weights."""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from neusight_onnx.collection import no_collection
from neusight_onnx.errors import ModelError, shown
from neusight_onnx.graph.decoder import Decoder
from neusight_onnx.graph.functions import Places, build_graph
from neusight_onnx.graph.model import Model, Notice
from neusight_onnx.graph.raw import ExternalData, RawModel
from neusight_onnx.graph.versions import OPEN_DOMAIN, newer_ir, newer_opset
from neusight_onnx.graph.wire import NUL, Buffer

MAPPED_BYTES = 8 << 20
"""Larger files are mapped, so that only the pages of the graph are ever read; smaller ones are faster read whole."""

HASHED_BYTES = 256 << 20
"""Larger files get no sha256: at 0.4 to 1.5 GB/s the digest alone would take seconds."""


def read_model(path: str | Path) -> Model:
    """Reads the model file ``path``.

    Weights are never loaded: a tensor keeps its data only if it is small. External files are looked for inside the
    model's folder only. ``Model.sha256`` is "" for files over ``HASHED_BYTES``. Raises ModelError, naming the file.
    """
    try:
        with _opened(Path(path)) as buffer, no_collection():
            return _model(buffer, Path(path), str(path))
    except ModelError as error:
        raise ModelError(f"{shown(str(path), 300)} {error}") from None


def read_model_bytes(data: bytes, *, folder: Path | None = None, label: str = "<bytes>") -> Model:
    """A model that is in memory; ``folder`` is where its external data may lie (None: nowhere)."""
    try:
        _refuse_other_formats(data[:1024], len(data))
        with no_collection():
            return _model(data, None if folder is None else folder / "model.onnx", label)
    except ModelError as error:
        raise ModelError(f"{shown(label, 300)} {error}") from None


@contextmanager
def opened_model(path: Path) -> Iterator[Buffer]:
    """The bytes of the model file ``path``, mapped if they are many; raises ModelError, naming the file."""
    try:
        with _opened(path) as buffer:
            yield buffer
    except ModelError as error:
        raise ModelError(f"{shown(str(path), 300)} {error}") from None


_URL = re.compile(r"[a-z][a-z0-9+.-]+:/")
_WEIGHTS_BESIDE = re.compile(r"\.onnx[._]?(?:data|weights?)", re.IGNORECASE)
"""Names that exporters give files of external data: torch's model.onnx.data, Optimum's model.onnx_data."""

_MOST_LISTED = 4
_MOST_LOOKED_AT = 2000


def _models_in(folder: Path) -> str:
    """What to give in place of a folder: the models in it and in its folders, as an exporter leaves them."""
    found = []
    pending = [folder]
    looked_at = 0
    for place in pending:
        try:
            with os.scandir(place) as entries:
                for entry in islice(entries, _MOST_LOOKED_AT - looked_at):
                    looked_at += 1
                    if entry.name.lower().endswith(".onnx") and entry.is_file():
                        found.append(os.path.relpath(entry.path, folder))
                    elif place == folder and entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
        except OSError:
            continue
    if not found:
        return "there is no .onnx file in it; export the model first"
    names = [shown(name, 60) for name in sorted(found)[:_MOST_LISTED]]
    more = f" and {len(found) - len(names):,} more" if len(found) > len(names) else ""
    if len(found) == 1:
        return f"give the .onnx file in it, {names[0]}"
    return f"give one of the .onnx files in it: {', '.join(names)}{more}"


@contextmanager
def _opened(path: Path) -> Iterator[Buffer]:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ModelError(f"is a folder; {_models_in(path)}")
        if not stat.S_ISREG(mode):
            raise ModelError("is no regular file; save the model to a file first")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(1024)
            _refuse_other_formats(head, size)
            if size <= MAPPED_BYTES:
                yield head + file.read()
            else:
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                    yield mapped
    except FileNotFoundError:
        if _URL.match(str(path)):
            raise ModelError("is an address; download the file, and give its path") from None
        raise ModelError("does not exist; check the path") from None
    except PermissionError:
        raise ModelError("can't be read: permission denied") from None
    except (OSError, ValueError) as error:
        # ValueError: a path with a zero byte in it.
        raise ModelError(f"can't be read: {getattr(error, 'strerror', None) or error}") from None


_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x1f\x8b", "is compressed with gzip; unpack it first"),
    (0, b"BZh", "is compressed with bzip2; unpack it first"),
    (0, b"\xfd7zXZ", "is compressed with xz; unpack it first"),
    (0, b"\x28\xb5\x2f\xfd", "is compressed with zstd; unpack it first"),
    (0, b"\x7fELF", "is a program or library, no ONNX model"),
    (0, b"\x89PNG", "is a picture, no ONNX model"),
    (0, b"%PDF", "is a PDF document, no ONNX model"),
    (0, b"PK\x03\x04", "is a zip archive (a PyTorch checkpoint, perhaps), no ONNX model; unpack or export it"),
    (0, b"version https://git-lfs", "is a Git LFS pointer, not the model itself; run `git lfs pull`"),
    (0, b"\x89HDF", "is an HDF5 file (Keras, perhaps), no ONNX model; convert it with tf2onnx"),
    (0, b"GGUF", "is a GGUF file, no ONNX model; export the original model to ONNX"),
    (4, b"ORTM", "is in ONNX Runtime's ORT format; give the .onnx file that it was made from"),
    (4, b"TFL3", "is a TensorFlow Lite model; convert it with tf2onnx"),
    (8, b'{"', "is a safetensors file: weights without a graph; export the model to ONNX"),
    (0, b"ptrt", "is a TensorRT engine; give the .onnx file that it was built from"),
    (0, b"ftrt", "is a TensorRT engine; give the .onnx file that it was built from"),
    (0, b"\x80\x02", "is a Python pickle (a PyTorch checkpoint, perhaps); export the model to ONNX"),
    (0, b"\x80\x04", "is a Python pickle; export the model to ONNX"),
)


def _refuse_other_formats(head: bytes, size: int) -> None:
    if not size:
        raise ModelError("is empty (0 bytes); get the file again")
    for offset, magic, complaint in _MAGIC:
        if head.startswith(magic, offset):
            raise ModelError(complaint)
    text = head.lstrip()[:200].lower()
    if text.startswith((b"<!doctype", b"<html")):
        raise ModelError("is a web page, not a model; the download went wrong")
    if text.startswith(b"<?xml"):
        raise ModelError("is an XML file, no ONNX model")


def _model(buffer: Buffer, path: Path | None, label: str) -> Model:
    files = _Files(model=path)
    decoder = Decoder(buffer, files)
    try:
        raw = decoder.model()
    except ModelError as error:
        if _is_text(buffer[:1024]):
            raise ModelError("is a text file, no ONNX model; give a .onnx file (binary protobuf)") from None
        if path is not None and _WEIGHTS_BESIDE.search(path.name):
            raise ModelError(
                "is the weights of a model, kept beside it; give the .onnx file, which holds the graph"
            ) from None
        if not _begins_like_a_model(buffer[0]):
            raise ModelError("is no ONNX model, it begins like none; give a .onnx file (binary protobuf)") from None
        raise error
    opsets = _opsets(raw)
    notices = _version_notices(raw.ir_version, opsets)
    graph, odd = build_graph(raw, opsets)
    return Model(
        path=label,
        sha256=_digest(buffer, path),
        byte_count=len(buffer),
        ir_version=raw.ir_version,
        producer=raw.producer,
        opsets=opsets,
        graph=graph,
        warnings=(*notices, *_replaceable_notices(raw), *odd, *_stripped_notices(decoder.stripped), *files.notices()),
    )


def _opsets(raw: RawModel) -> dict[str, int]:
    opsets = dict(raw.opsets)
    if "" not in opsets and raw.ir_version < 3:
        # Before IR version 3 models could not import operator sets; the standard reads that as version 1.
        opsets[""] = 1
    return opsets


def read_places(buffer: Buffer, path: Path) -> tuple[RawModel, Places]:
    """The file as it stands, and what :func:`read_model` calls its nodes and values; ``buffer`` is that of ``path``."""
    with no_collection():
        raw = Decoder(buffer, _Files(model=path)).model()
        places = Places()
        build_graph(raw, _opsets(raw), places=places)
        return raw, places


def _digest(buffer: Buffer, path: Path | None) -> str:
    if isinstance(buffer, bytes):
        return hashlib.sha256(buffer).hexdigest()
    if len(buffer) > HASHED_BYTES or path is None:
        return ""
    # Read anew in pieces: hashing the mapping would hold the whole file in memory.
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _begins_like_a_model(first: int) -> bool:
    """Whether the first byte can be a field of a ModelProto: all have a number above 0 and hold an integer (0) or what
    has a length (2)."""
    return first >= 8 and first & 7 in (0, 2)


def _is_text(head: bytes) -> bool:
    """Whether it is UTF-8 without control characters; its last character may be cut."""
    text = head.decode("utf-8", "replace").removesuffix("\ufffd")
    return all(character.isprintable() or character in "\t\n\r" for character in text.replace("\ufffd", "\0"))


def _version_notices(ir_version: int, opsets: Mapping[str, int]) -> list[Notice]:
    notices = []
    known = newer_ir(ir_version)
    if known is not None:
        notices.append(
            Notice(
                code="ir-version-newer",
                message=f"the model has IR version {ir_version}, newer than {known}, the newest that the installed "
                "onnx knows; what is new in it is not understood",
            )
        )
    for domain, version in opsets.items():
        if version < 1:
            notices.append(
                Notice(
                    code="opset-invalid",
                    message=f"the model imports an opset of {domain or 'ai.onnx'} that is below 1, where opsets begin; "
                    "its operators are read as of their oldest version",
                )
            )
        known = newer_opset(domain, version)
        if known is not None:
            notices.append(
                Notice(
                    code="opset-newer",
                    message=f"the model imports opset {version} of {domain or 'ai.onnx'}, newer than {known}, "
                    + (
                        "the only one that there is"
                        if domain == OPEN_DOMAIN
                        else "the newest that the installed onnx knows"
                    )
                    + "; operators are read as of that version",
                )
            )
    return notices


_FOLDS_WEIGHTS = frozenset({"BatchNormalization", "Conv", "ConvTranspose", "Gemm", "MatMul"})


def _replaceable_notices(raw: RawModel) -> list[Notice]:
    """That callers may replace weights: since IR version 4 a constant that is an input, too, is the input's default."""
    read = {name for node in raw.graph.nodes if node.op_type in _FOLDS_WEIGHTS for name in node.inputs}
    found = [item.name for item in raw.graph.inputs if item.name in raw.graph.initializers and item.name in read]
    if raw.ir_version < 4 or not found:
        return []
    weights = "1 weight" if len(found) == 1 else f"{len(found):,} weights"
    return [
        Notice(
            code="constants-as-inputs",
            message=f"the caller may replace {weights} ({shown(found[0])!r} first), being listed as inputs, too: ONNX "
            "Runtime folds none of them (batch normalizations stay kernels); taken as constants here",
        )
    ]


def _stripped_notices(stripped: list[tuple[str, int]]) -> list[Notice]:
    if not stripped:
        return []
    return [
        Notice(
            code="weights-stripped",
            message=f"the bytes of {len(stripped)} tensor{'' if len(stripped) == 1 else 's'} "
            f"({sum(size for _, size in stripped):,} bytes) are not "
            f"in the file, {shown(stripped[0][0])!r} first; analysed from their types and shapes",
        )
    ]


@dataclass(slots=True, kw_only=True)
class _Files:
    """The external files of a model. ``model`` is the model's path; nothing outside its folder is touched.

    A model that is a symbolic link (a Hugging Face cache) may also have its data in the folder it links to.
    """

    model: Path | None
    folders: tuple[str, ...] | None = None
    sizes: dict[str, int | None] = field(default_factory=dict)
    missing: dict[str, list[int]] = field(default_factory=dict)
    short: dict[str, int] = field(default_factory=dict)
    odd: dict[str, str] = field(default_factory=dict)
    """What a location is that is there, yet no file."""

    def look(self, data: ExternalData, *, wanted: bool) -> tuple[bool, bytes | None]:
        """See :class:`neusight_onnx.graph.wire.ExternalFiles`."""
        if data.location not in self.sizes:
            self.sizes[data.location] = self._size(data)
        size = self.sizes[data.location]
        if size is None:
            self.missing.setdefault(data.location, []).append(data.byte_count)
            return True, None
        if data.offset + data.byte_count > size:
            self.short[data.location] = max(self.short.get(data.location, 0), data.offset + data.byte_count)
            return True, None
        if not wanted:
            return False, None
        assert self.model is not None
        try:
            with open(os.path.join(self.model.parent, data.location), "rb") as file:
                file.seek(data.offset)
                content = file.read(data.byte_count)
        except OSError:
            content = b""
        if len(content) != data.byte_count:
            self.missing.setdefault(data.location, []).append(data.byte_count)
            return True, None
        return False, content

    def _size(self, data: ExternalData) -> int | None:
        """The file's size, None if it is not there (or is no regular file, or can't be read)."""
        location = data.location
        parts = location.replace("\\", "/").split("/")
        inside = not (location.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or NUL in location)
        if not inside or not location:
            raise ModelError(_escaping(data))
        if self.model is None:
            return None
        if self.folders is None:
            real = os.path.realpath(self.model)
            self.folders = (os.path.realpath(self.model.parent), os.path.dirname(real))
        target = os.path.realpath(os.path.join(self.model.parent, location))
        if not any(target.startswith(folder.rstrip(os.sep) + os.sep) for folder in self.folders):
            raise ModelError(_escaping(data, is_link=True))
        try:
            facts = os.stat(target)
        except OSError:
            return None
        if not stat.S_ISREG(facts.st_mode):
            self.odd[location] = "a folder, no file" if stat.S_ISDIR(facts.st_mode) else "no regular file"
            return None
        return facts.st_size

    def notices(self) -> list[Notice]:
        notices = []
        if self.missing:
            names = list(self.missing)
            first = shown(names[0])
            which = repr(first) if len(names) == 1 else f"{len(names)} files, {first!r} first,"
            verb = "is" if len(names) == 1 else "are"
            what = self.odd.get(names[0], "not there")
            sizes = [size for file in self.missing.values() for size in file]
            notices.append(
                Notice(
                    code="external-data-missing",
                    message=f"external data {which} {verb} {what} "
                    f"({len(sizes)} tensor{'' if len(sizes) == 1 else 's'}, {sum(sizes):,} bytes); "
                    "analysed from their types and shapes",
                )
            )
        for location, needed in self.short.items():
            notices.append(
                Notice(
                    code="external-data-short",
                    message=f"external data {shown(location)!r} has {self.sizes[location]:,} bytes, but its tensors "
                    f"need {needed:,}; analysed from their types and shapes",
                )
            )
        return notices


def external_path(model: Path, data: ExternalData) -> Path | None:
    """The file beside ``model`` that external data lie in; None where it isn't there, or holds less.

    ModelError for a place outside the model's folder.
    """
    missing, _ = _Files(model=model).look(data, wanted=False)
    return None if missing else model.parent / data.location


def _escaping(data: ExternalData, *, is_link: bool = False) -> str:
    where = "leads by a link out of" if is_link else "is not inside"
    return (
        f"puts the data of tensor {shown(data.tensor)!r} at {shown(data.location)!r}, which {where} the model's "
        "folder; it was not opened"
    )
