"""A server that answers as the Hugging Face hub does, for a model or data set in a folder, and records the requests."""

import hashlib
import http.server
import json
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Hub:
    """Server of a folder. ``asked`` contains the requests, method and path, since it was last cleared.

    The server closes the connection in the middle of files whose names end with ``breaks_off``, and stops sending in
    the middle of those that end with ``stalls``.
    """

    def __init__(self, name: str, folder: Path, kind: str = "models") -> None:
        self.name, self.folder, self.kind = name, folder, kind
        self.commit = "1" * 40
        self.asked: list[str] = []
        self.breaks_off = self.stalls = ("none",)
        self.closed = threading.Event()
        handler = type("Handler", (Handler,), {"hub": self})
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())

    def close(self) -> None:
        self.closed.set()
        self._http.shutdown()
        self._http.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    hub: Hub

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        api = f"/api/{self.hub.kind}/{self.hub.name}"
        files = f"{'' if self.hub.kind == 'models' else f'/{self.hub.kind}'}/{self.hub.name}/resolve/"
        if path.startswith(f"{api}/tree/"):
            self._tree(path.removeprefix(f"{api}/tree/").partition("/")[2])
        elif path in (api, f"{api}/revision/main", f"{api}/revision/{self.hub.commit}"):
            self._json(
                {
                    "id": self.hub.name,
                    "sha": self.hub.commit,
                    "private": False,
                    "tags": [],
                    "downloads": 0,
                    "siblings": [{"rfilename": name} for name in self.hub.files()],
                }
            )
        elif (
            path.startswith(files) and (found := self.hub.folder / path.removeprefix(files).split("/", 1)[1]).is_file()
        ):
            data = found.read_bytes()
            self._send(data, ETag=f'"{_sum(data)}"', **{"X-Repo-Commit": self.hub.commit})
        else:
            self._missing("EntryNotFound" if path.startswith(files) else "RepoNotFound")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"{self.command} {path}")
        wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["paths"]
        self._json([self._entry(name) for name in wanted if (self.hub.folder / name).exists()])

    def _tree(self, folder: str) -> None:
        """Return the contents of a folder, or all files anywhere below it."""
        below = self.hub.folder / folder
        if not below.is_dir():
            self._missing("EntryNotFound")
            return
        inside = sorted(below.rglob("*") if "recursive=True" in self.path else below.iterdir())
        names = [str(one.relative_to(self.hub.folder)) for one in inside]
        self._json([self._entry(name) for name in names])

    def _missing(self, code: str) -> None:
        self.send_response(404)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _entry(self, name: str) -> dict[str, object]:
        if (self.hub.folder / name).is_dir():
            return {"type": "directory", "path": name, "oid": _sum(name.encode())}
        data = (self.hub.folder / name).read_bytes()
        return {"type": "file", "path": name, "size": len(data), "oid": _sum(data)}

    def _json(self, answer: object) -> None:
        self._send(json.dumps(answer).encode(), **{"Content-Type": "application/json"})

    def _send(self, data: bytes, **headers: str) -> None:
        self.send_response(200)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            dies, stalls = self.path.endswith(self.hub.breaks_off), self.path.endswith(self.hub.stalls)
            self.wfile.write(data[: len(data) // 2] if dies or stalls else data)
            self.close_connection = dies or stalls
            if stalls:
                self.wfile.flush()
                self.hub.closed.wait(60)

    def log_message(self, *_: object) -> None:
        pass


def _sum(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
