"""A server of files that drops connections on request."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Server:
    """Server of a folder that can drop the connection, or answer with an error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []  # paths
        self.break_off_after: list[int] = []  # bytes of the next answers after which the connection is closed
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
        server = self.server_of
        server.asked.append(self.path)
        path = server.folder / self.path.partition("?")[0].lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        data = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", '"first"')
        self.end_headers()
        stop = server.break_off_after.pop(0) if server.break_off_after else len(data)
        self.wfile.write(data[:stop])
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass
