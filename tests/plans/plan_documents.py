"""Plans as bytes, for properties that hold for every one."""

from __future__ import annotations

from hypothesis import strategies as st

PROSE = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="{}`<>"), max_size=12)


@st.composite
def documents(draw):
    """A document as pieces of bytes: boxes stand alone, as (key, mark)."""
    pieces: list[bytes | tuple[str, bytes]] = [draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))]
    for number in range(draw(st.integers(1, 8))):
        end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
        bullet = draw(st.sampled_from(["-", "*", "+", "7."]))
        fence = f"{end}```{end}- [ ] not {{#t{number}}}{end}```{end}" if draw(st.booleans()) else end
        mark = draw(st.sampled_from([b" ", b"x", b"X"]))
        pieces += [f"{bullet} [".encode(), (f"t{number}", mark)]
        pieces.append(f"]\tä{draw(PROSE)} {{#t{number}}}{end}{'   ' + draw(PROSE) + end}{fence}".encode())
    if draw(st.booleans()):
        pieces.append(b"the end, without a newline")
    return pieces
