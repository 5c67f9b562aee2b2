"""Bounded reading of the files of one problem package.

Guarantees: no file outside the package's folder is read, whatever its links say; nothing but a
regular file is opened; no more bytes are taken than the limits below; YAML becomes plain values
only. Whatever breaks one of these raises `PackageRefused` with a sentence that names the file.
"""

import os
import stat
from pathlib import Path
from typing import Any

import yaml

YAML_BYTES_MAX = 64 * 1024
DATA_FILE_BYTES_MAX = 64 * 1024 * 1024
DATA_TOTAL_BYTES_MAX = 256 * 1024 * 1024
LINK_BYTES_MAX = 255
LINK_HOPS_MAX = 8


class PackageRefused(ValueError):
    """The package cannot be imported; the message is a sentence that says why."""


class _AliasFreeLoader(yaml.SafeLoader):
    """Aliases are refused because merge keys turn a few of them into gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


class PackageFiles:
    """The files of one package folder, read within the module's limits."""

    def __init__(self, root: Path) -> None:
        """Open the package folder `root`; `PackageRefused` when it is no folder."""
        if not root.is_dir():
            raise PackageRefused(f"{root} is not a folder.")
        self.root = root.resolve(strict=True)
        self._data_root = self.root / "data"
        self._data_bytes = 0

    def show(self, path: Path) -> str:
        """Return `path` as it reads inside the package, for messages."""
        return path.relative_to(self.root).as_posix() if path != self.root else "."

    def folder(self, path: Path) -> list[Path]:
        """List the entries of a folder by name, hidden ones left out; empty when it is missing."""
        if not os.path.lexists(path):
            return []
        real = self._inside(path)
        if not real.is_dir():
            raise PackageRefused(f"{self.show(path)} is not a folder.")
        return sorted(path / name for name in os.listdir(real) if not name.startswith("."))

    def has(self, *names: str) -> str | None:
        """Return the first of `names` that exists at the package's top, else None."""
        return next((name for name in names if os.path.lexists(self.root / name)), None)

    def mapping(self, path: Path) -> dict[str, Any]:
        """Read a YAML mapping with text keys; an empty file is an empty mapping."""
        shown = self.show(path)
        raw = self._read(path, bytes_max=YAML_BYTES_MAX)
        try:
            loader = _AliasFreeLoader(raw.decode("utf-8"))
            try:
                value = loader.get_single_data()
            finally:
                loader.dispose()
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise PackageRefused(f"{shown} is not readable YAML: {reason}.") from error
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise PackageRefused(f"{shown} is not a mapping of names to values.")
        return value

    def text(self, path: Path) -> str:
        """Read a short text file (at most `YAML_BYTES_MAX` bytes of UTF-8)."""
        try:
            return self._read(path, bytes_max=YAML_BYTES_MAX).decode("utf-8")
        except UnicodeDecodeError as error:
            raise PackageRefused(f"{self.show(path)} is not UTF-8 text.") from error

    def data(self, path: Path) -> bytes:
        """Read a file of test data, following links that were flattened into small files."""
        content = self._read(path, bytes_max=DATA_FILE_BYTES_MAX)
        current = path
        for _ in range(LINK_HOPS_MAX):
            target = self._flattened_target(current, content)
            if target is None:
                self._count(path, len(content))
                return content
            current = target
            content = self._read(current, bytes_max=DATA_FILE_BYTES_MAX)
        raise PackageRefused(f"{self.show(path)} is a link that goes round in circles.")

    def links_to_folder(self, path: Path) -> bool:
        """Say whether a file without suffix is nothing but the relative path of a data folder."""
        if path.suffix:
            return False
        target = self._flattened_target(path, self._read(path, bytes_max=DATA_FILE_BYTES_MAX))
        return target is not None and target.is_dir()

    def _flattened_target(self, path: Path, content: bytes) -> Path | None:
        """Return the file that `content` links to, or None when it is data of its own.

        Archives and checkouts without symbolic links leave a regular file that holds nothing but
        the link's relative target. Only a path with the file's own suffix counts, so that real
        data is not mistaken for one.
        """
        if not 0 < len(content) <= LINK_BYTES_MAX or not content.endswith(path.suffix.encode()):
            return None
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            return None
        if not text.isprintable() or text.startswith("/"):
            return None
        target = Path(os.path.normpath(path.parent / text))
        if not target.is_relative_to(self._data_root):
            raise PackageRefused(f"{self.show(path)} links to {text}, outside the package's data.")
        return target if os.path.lexists(target) else None

    def _count(self, path: Path, size: int) -> None:
        self._data_bytes += size
        if self._data_bytes > DATA_TOTAL_BYTES_MAX:
            raise PackageRefused(
                f"The test data is larger than {DATA_TOTAL_BYTES_MAX} bytes"
                f" (reached at {self.show(path)})."
            )

    def _inside(self, path: Path) -> Path:
        """Return the real place of `path`, which must lie inside the package."""
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of symbolic links
            raise PackageRefused(
                f"{self.show(path)} is missing, or a link that leads nowhere."
            ) from error
        if not real.is_relative_to(self.root):
            raise PackageRefused(f"{self.show(path)} is a link to a place outside the package.")
        return real

    def _read(self, path: Path, *, bytes_max: int) -> bytes:
        real = self._inside(path)
        shown = self.show(path)
        try:
            # Opening a FIFO or a device could block for ever, hence the look first.
            if not stat.S_ISREG(real.stat().st_mode):
                raise PackageRefused(f"{shown} is not a regular file.")
            with real.open("rb") as handle:
                content = handle.read(bytes_max + 1)
        except OSError as error:
            raise PackageRefused(f"{shown} cannot be read: {error.strerror}.") from error
        if len(content) > bytes_max:
            raise PackageRefused(f"{shown} is larger than {bytes_max} bytes.")
        return content
