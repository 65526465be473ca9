"""A video that is written frame by frame, so that its length takes no memory."""

from pathlib import Path
from typing import Any, Self

KINDS = (".mp4", ".mov", ".mkv", ".webm", ".avi", ".gif")
_FPS = 30
_OTHER_CODECS = {".webm": ("libvpx-vp9", "yuv420p"), ".gif": ("gif", "rgb8")}
_CODEC = ("libx264", "yuv420p")


class Film:
    """Writes a video.

    Args:
        path: The file; its suffix determines the format.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Any = None

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()

    def add(self, picture: Any) -> None:
        """Add a frame, uint8 [height, width, 3]; all frames have one size."""
        import imageio_ffmpeg  # type: ignore[import-untyped]
        import numpy as np

        if self._writer is None:
            codec, pixels = _OTHER_CODECS.get(self._path.suffix.lower(), _CODEC)
            height, width = picture.shape[:2]
            self._writer = imageio_ffmpeg.write_frames(
                str(self._path),
                (width, height),
                fps=_FPS,
                codec=codec,
                pix_fmt_out=pixels,
                macro_block_size=2,  # these codecs need even sides
            )
            self._writer.send(None)
        self._writer.send(np.ascontiguousarray(picture))
