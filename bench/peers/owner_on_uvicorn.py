"""The owner of a project with the same routes behind uvicorn.  Argument: the project's folder."""

import asyncio
import sys
from pathlib import Path

import uvicorn

from muster.app import owner
from muster.web.http import Request

OPTIONS = {"http": "httptools", "loop": "asyncio", "lifespan": "off", "access_log": False, "log_config": None}


async def serve(app, listening, closing):
    async def answer(scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        query = scope["query_string"].decode("latin-1")
        target = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        reply = await app.answer(Request(scope["method"], target, scope["headers"], body))
        headers = [
            (b"content-type", reply.media_type.encode()),
            (b"content-length", b"%d" % len(reply.data)),
        ]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.data})

    server = uvicorn.Server(uvicorn.Config(answer, **OPTIONS))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    await closing.wait()
    server.should_exit = True
    await serving


owner.serve = serve
sys.exit(owner.run_owner(Path(sys.argv[1])))
