"""``push=ORG/NAME`` against a server that answers as the hub does, and records the requests."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from contrastive_encoders.io.output_directory import MARKER
from tests.forks import run_command

ROOT = Path(__file__).resolve().parents[2]


class Hub(BaseHTTPRequestHandler):
    """Server with repositories, the check of the front matter, upload modes, large files, and one commit."""

    def answer(self, content, status=200):
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def received(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.command, self.path, body, self.headers.get("Authorization")))
        return body

    def do_POST(self):
        body = self.received()
        if self.server.refuses:
            return self.answer({"error": "You may not."}, self.server.refuses)
        address = f"http://{self.headers['Host']}"
        if self.path == "/api/repos/create":
            return self.answer({"url": f"{address}/me/encoder", "id": "me/encoder"})
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if "/preupload/" in self.path:
            files = json.loads(body)["files"]
            modes = [(f["path"], "lfs" if f["path"].endswith(".safetensors") else "regular") for f in files]
            return self.answer({"files": [{"path": p, "uploadMode": m, "shouldIgnore": False} for p, m in modes]})
        if self.path.endswith("/info/lfs/objects/batch"):
            upload = {"upload": {"href": f"{address}/large", "header": {}}}
            asked = json.loads(body)["objects"]
            objects = [{"oid": o["oid"], "size": o["size"], "authenticated": True, "actions": upload} for o in asked]
            return self.answer({"transfer": "basic", "objects": objects})
        if "/commit/" in self.path:
            return self.answer(
                {"commitUrl": f"{address}/me/encoder/commit/1", "commitOid": "1", "pullRequestUrl": None}
            )
        return self.answer({"error": f"unknown {self.path}"}, 404)

    def do_PUT(self):
        self.received()
        self.answer({})

    def do_GET(self):
        self.received()
        self.answer({"error": "not found"}, 404)

    def do_HEAD(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def hub():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.requests, server.refuses = [], 0
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def export(server, folder, backbone, *overrides, **environment):
    address = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(folder / "home")}
    switches = {"HF_HUB_OFFLINE": "", "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": "hf_secret", "no_proxy": "127.0.0.1"}
    command = ["-m", "contrastive_encoders", "export", f"run={backbone}", f"output={folder / 'out'}", *overrides]
    return run_command(command, folder, **(address | switches | environment))


def test_everything_of_the_folder_is_committed_once_and_private(hub, tiny_mlm, tmp_path):
    done = export(hub, tmp_path, tiny_mlm, "push=me/encoder")
    assert done.returncode == 0, done.stderr
    assert "me/encoder/commit/1" in done.stderr
    assert "hf_secret" not in done.stderr + done.stdout
    asked = {path: body for method, path, body, _ in hub.requests if method == "POST"}
    made = json.loads(asked["/api/repos/create"])
    assert (made["name"], made["organization"], made["visibility"]) == ("encoder", "me", "private")
    writes = ("/api/repos/create", "/preupload/", "/commit/")  # the check of the front matter needs no token
    tokens = {token for _, path, _, token in hub.requests if any(part in path for part in writes)}
    assert tokens == {"Bearer hf_secret"}
    (commit,) = [body for path, body in asked.items() if "/commit/" in path]
    sent = {}
    for line in map(json.loads, commit.splitlines()):
        value = line["value"]
        if line["key"] == "file":
            sent[value["path"]] = base64.b64decode(value["content"])
        elif line["key"] == "lfsFile":
            (large,) = [body for method, path, body, _ in hub.requests if (method, path) == ("PUT", "/large")]
            assert hashlib.sha256(large).hexdigest() == value["oid"]
            sent[value["path"]] = large
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.name != MARKER]
    assert sent == {str(path.relative_to(tmp_path / "out")): path.read_bytes() for path in files}


def test_a_public_repository_is_made_when_asked_for(hub, tiny_mlm, tmp_path):
    assert export(hub, tmp_path, tiny_mlm, "push=me/encoder", "private=false").returncode == 0
    (made,) = [json.loads(body) for _, path, body, _ in hub.requests if path == "/api/repos/create"]
    assert made["visibility"] == "public"


def test_nothing_is_sent_unless_asked(hub, tiny_mlm, tmp_path):
    assert export(hub, tmp_path, tiny_mlm).returncode == 0
    assert hub.requests == []


@pytest.mark.parametrize(
    ("overrides", "environment", "message"),
    [
        (["push=me/encoder"], {"HF_TOKEN": ""}, "HF_TOKEN"),
        (["push=encoder"], {}, "push=encoder: "),
        (["push=me/encoder"], {"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE"),
    ],
)
def test_an_invalid_push_is_refused_before_anything_is_written(
    hub, tiny_mlm, tmp_path, overrides, environment, message
):
    done = export(hub, tmp_path, tiny_mlm, *overrides, **environment)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert hub.requests == []
    assert not (tmp_path / "out").exists()


def test_a_refused_upload_keeps_the_directory(hub, tiny_mlm, tmp_path):
    hub.refuses = 403
    done = export(hub, tmp_path, tiny_mlm, "push=me/encoder")
    assert done.returncode == 2, done.stderr
    assert " 403: You may not." in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "out" / "modules.json").is_file()


def test_an_unreachable_hub_is_reported(hub, tiny_mlm, tmp_path):
    hub.shutdown()
    hub.server_close()
    done = export(hub, tmp_path, tiny_mlm, "push=me/encoder")
    assert done.returncode == 2, done.stderr
    assert f":{hub.server_port}" in done.stderr
    assert "Traceback" not in done.stderr
