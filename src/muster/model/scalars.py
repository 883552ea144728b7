"""The limits of single values, as everything that is decoded is checked against them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster.model import patterns
from muster.model.durations import DURATION_MAX_S
from muster.model.kinds import NAME_CHARS_MAX, RETRIES_MAX, SECONDS_MAX, TITLE_CHARS_MAX
from muster.model.numbers import NUMBER_MAX

TEXT_CHARS_MAX = 10_000
Text = Annotated[str, Meta(max_length=TEXT_CHARS_MAX)]
Title = Annotated[str, Meta(min_length=1, max_length=TITLE_CHARS_MAX)]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
ArtifactName = Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX, pattern=patterns.ARTIFACT.regex)]
Key = Annotated[str, Meta(min_length=1)]
"""Of a task within its plan: headings and title make it, so it may be long."""
Count = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Id = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
Changes = Annotated[str, Meta(pattern=patterns.CHANGES.regex)]
"""`none`, or empty."""
Priority = Annotated[int, Meta(ge=1, le=10)]
Signed = Annotated[int, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
SortKey = Signed
Seconds = Annotated[int, Meta(ge=1, le=SECONDS_MAX)]
Retries = Annotated[int, Meta(ge=0, le=RETRIES_MAX)]
TokenSeconds = Annotated[int, Meta(ge=1, le=int(DURATION_MAX_S))]
LeaseSeconds = Annotated[float, Meta(ge=1, le=7 * 86400)]
TokenHash = Annotated[str, Meta(pattern=patterns.SHA256.regex)]
ExitCode = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 32)]
