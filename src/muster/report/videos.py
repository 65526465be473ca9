"""Videos in a run directory, embedded in the page."""

import base64
import os
from pathlib import Path

from muster.report.html import Html, tag
from muster.run.files import read_regular

KINDS = {".mp4": "video/mp4", ".webm": "video/webm"}
MOST_BYTES = 8 << 20
"""Maximum size of one video."""
MOST_VIDEOS = 4
"""Maximum number of videos of one run."""


def videos(run: Path) -> list[Html]:
    """Return players for the videos in a run directory and in its `videos/`.

    A video that is too large, or not a regular file, is only named.
    """
    found = []
    for path in [each for folder in (run, run / "videos") for each in _of(folder)][:MOST_VIDEOS]:
        try:
            data = read_regular(path, MOST_BYTES, links=False)
        except OSError as error:
            found.append(tag("p", f"{path.name}: {error.strerror}", class_="soft"))
            continue
        content = base64.b64encode(data).decode()
        player = tag(
            "video",
            src=f"data:{KINDS[path.suffix]};base64,{content}",
            controls=True,
            preload="metadata",
        )
        found.append(tag("figure", tag("figcaption", path.name), player))
    return found


def _of(folder: Path) -> list[Path]:
    if folder.is_symlink():
        return []
    try:
        return sorted(folder / name for name in os.listdir(folder) if Path(name).suffix in KINDS)
    except OSError:
        return []
