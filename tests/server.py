"""A server of files that breaks connections off when it is told to."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Server:
    """Serves a folder; can break off, know no ranges, or answer with an error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, str | None]] = []  # path, Range
        self.break_off_after: list[int] = []  # bytes of the next answers after which the connection ends
        self.ranges = True
        self.tag: str | None = '"first"'
        handler = type("Handler", (Handler,), {"server_of": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class Handler(BaseHTTPRequestHandler):
    server_of: Server

    def do_GET(self) -> None:
        server, wanted = self.server_of, self.headers.get("Range")
        server.asked.append((self.path, wanted))
        path = server.folder / self.path.partition("?")[0].lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        data, start = path.read_bytes(), 0
        total = len(data)
        if wanted and server.ranges and self.headers.get("If-Range") == server.tag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(total - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        if server.tag:
            self.send_header("ETag", server.tag)
        self.end_headers()
        stop = server.break_off_after.pop(0) if server.break_off_after else total
        self.wfile.write(data[start : start + stop])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass
