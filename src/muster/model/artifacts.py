"""What an attempt has made, on its way to where it is kept."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from muster.model import patterns
from muster.model.answers import Answer
from muster.model.numbers import ARTIFACT_BYTES_MAX, ARTIFACT_PART_BYTES
from muster.model.scalars import ArtifactName, Count


class ArtifactPart(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of a file that is to be named; sent again it does no harm."""

    name: ArtifactName
    """As it will be named."""
    sha256: Annotated[str, Meta(pattern=patterns.SHA256.regex)]
    """Of all of it."""
    size: Annotated[int, Meta(ge=0, le=ARTIFACT_BYTES_MAX)]
    """Of all of it."""
    offset: Count
    data: Annotated[bytes, Meta(max_length=ARTIFACT_PART_BYTES)]


class ArtifactReceived(Answer, frozen=True, kw_only=True):
    received: int
    """Go on from here."""
    whole: bool
    """All of it is on the disk."""
