"""What is said to a process by its standard input while it works."""

from __future__ import annotations

import os


class StdinWriter:
    """The writing end of its pipe.  Never blocks: what the pipe does not take yet waits here for `go_on`."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._waiting = memoryview(b"")
        self.ends = False
        self.closed = False

    def close_after(self, kind: type[BaseException] | None, *_: object) -> None:
        """For `ExitStack.push`: closes it where something went wrong."""
        if kind is not None:
            self.close()

    @property
    def fd(self) -> int | None:
        """Call `go_on` once this takes data again; None where nothing waits."""
        return self._fd if self._waiting else None

    @property
    def open(self) -> bool:
        """What is said now gets there: all before it was taken, and nobody has hung up."""
        return not (self.closed or self.ends or self._waiting)

    def say(self, data: bytes) -> None:
        self._waiting = memoryview(bytes(self._waiting) + data)
        self.go_on()

    def end(self) -> None:
        """Closes the pipe once all is said."""
        self.ends = True
        self.go_on()

    def go_on(self) -> None:
        if self.closed:
            return
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(self._fd, self._waiting) :]
        except BlockingIOError:
            return
        except OSError:  # nobody reads any more
            self.close()
            return
        if self.ends:
            self.close()

    def close(self) -> None:
        """Closes it now, whatever was not taken."""
        if not self.closed:
            self.closed, self._waiting = True, memoryview(b"")
            os.close(self._fd)
