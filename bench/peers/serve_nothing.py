"""A server on httptools that answers everything with the same 15 bytes.  Argument: its socket."""

import asyncio
import socket
import sys

BODY = b'{"status":"ok"}'


def main() -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(sys.argv[1])
        listening.listen(64)
        asyncio.run(by_httptools(listening))


async def by_httptools(listening: socket.socket) -> None:
    import httptools

    class Connection(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport
            self.parser = httptools.HttpRequestParser(self)

        def data_received(self, data):
            self.parser.feed_data(data)

        def on_message_complete(self):
            asyncio.get_running_loop().create_task(self.answer())

        async def answer(self):
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(BODY), BODY))

    server = await asyncio.get_running_loop().create_unix_server(Connection, sock=listening)
    await server.serve_forever()


main()
