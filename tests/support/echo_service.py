"""An HTTP service that reports the requests that it received: `python echo_service.py PORT`."""

from __future__ import annotations

import asyncio
import sys

from aiohttp import WSMsgType, web


async def echo(request: web.Request) -> web.StreamResponse:
    """Answer with the request as JSON. Some paths cause other responses."""
    if request.headers.get("Upgrade", "").lower() == "websocket":
        return await _websocket(request)
    if request.path == "/large":
        return await _large(request)
    if request.path == "/cut":
        return await _cut(request)
    if request.path == "/cookies":
        answer = web.Response(text="set")
        answer.headers.add("Set-Cookie", "own=1; Path=/; Domain=localhost; HttpOnly")
        answer.headers.add("Set-Cookie", "hai_session=stolen; Path=/")
        return answer
    if request.path == "/redirect":
        return web.Response(status=302, headers={"Location": "/elsewhere"})
    body = await request.read()
    facts = {
        "method": request.method,
        "path": request.raw_path,
        "headers": [[k, v] for k, v in request.headers.items()],
        "length": len(body),
    }
    return web.json_response(facts)


async def _large(request: web.Request) -> web.StreamResponse:
    """Answer with `pieces` times 64 KiB."""
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(int(request.query["pieces"])):
        await response.write(b"x" * 65536)
    return response


async def _cut(request: web.Request) -> web.StreamResponse:
    """Close the connection in the middle of the response."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"half")
    assert request.transport is not None
    request.transport.close()
    return response


async def _websocket(request: web.Request) -> web.StreamResponse:
    """Echo each message. Close with code 4001 after `bye`."""
    socket = web.WebSocketResponse(protocols=["v1.kernel"], max_msg_size=0)
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            if message.data == "bye":
                await socket.close(code=4001)
            else:
                await socket.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)
    return socket


async def main(port: int) -> None:
    application = web.Application(client_max_size=1 << 30)
    application.router.add_route("*", "/{path:.*}", echo)
    runner = web.AppRunner(application, auto_decompress=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    print("serving", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
