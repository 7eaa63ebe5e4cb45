"""A fake server for OpenAI's protocol, chats and completions, with faults on request."""

import contextlib
import hashlib
import json
import math
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = "the old red cat dog house tree runs sings sleeps under over".split()
JUDGED = {" True": 0.5, "true": 0.2, "False": 0.1, "Maybe": 0.05, "The": 0.01}  # of the first token


class Stand:
    """Answers by a hash of the request. Each of the ``faults`` applies to one of the next requests."""

    def __init__(self):
        self.asked = []  # (path, body, headers) of all requests
        self.answered = []  # bodies of the requests with a good answer
        self.faults = []
        self.always = None  # a fault of every request
        self.bad_prompt = None  # (part of a prompt, fault): for requests that contain it
        self.most_answered = None  # then it only drops connections
        self.logprobs = True
        self.most_at_once = self.now = 0
        self.delay = 0.0
        self.lock = threading.Lock()
        handler = type("Handler", (Handler,), {"stand": self})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()

    def fault_of(self, said):
        with self.lock:
            if self.bad_prompt and self.bad_prompt[0] in said:
                return self.bad_prompt[1]
            if self.most_answered is not None and len(self.answered) >= self.most_answered:
                return "gone"
            return self.always or (self.faults.pop(0) if self.faults else None)


def text_for(body):
    """Return a text that depends on a hash of the body, so that equal requests get equal texts."""
    number = int(hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest(), 16)
    return " ".join(WORDS[(number >> (8 * place)) % len(WORDS)] for place in range(6)).capitalize() + "."


def reply(body, *, chat, logprobs=True):
    text, finish = text_for(body), "stop"
    if body.get("max_tokens", 99) < 6 and "logprobs" not in body:
        text, finish = " ".join(text.split()[: body["max_tokens"]]), "length"
    choice = {"index": 0, "finish_reason": finish}
    if chat:
        choice["message"] = {"role": "assistant", "content": f'"{text}"' if finish == "stop" else f'"{text}'}
    else:
        choice["text"] = text
    if "logprobs" in body and logprobs:
        listed = {token: math.log(p) for token, p in JUDGED.items()}
        rows = [{"token": token, "logprob": log_p} for token, log_p in listed.items()]
        choice["logprobs"] = {"content": [{"top_logprobs": rows}]} if chat else {"top_logprobs": [listed]}
    return {"choices": [choice], "usage": {"completion_tokens": len(text.split())}}


class Handler(BaseHTTPRequestHandler):
    stand: Stand
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        stand = self.stand
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        chat = self.path == "/v1/chat/completions"
        with stand.lock:
            stand.asked.append((self.path, body, dict(self.headers)))
            stand.now += 1
            stand.most_at_once = max(stand.now, stand.most_at_once)
        try:
            time.sleep(stand.delay)
            said = body["messages"][0]["content"] if chat else body["prompt"]
            fault = stand.fault_of(said)
            good = json.dumps(reply(body, chat=chat, logprobs=stand.logprobs)).encode()
            if fault:
                self.do_wrong(fault, good)
            else:
                with stand.lock:
                    stand.answered.append(body)
                self.send(200, good)
        finally:
            with stand.lock:
                stand.now -= 1

    def do_wrong(self, fault, good):
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if fault == "429":
            self.send(429, b'{"error": {"message": "slow down"}}', {"Retry-After": "0.05"})
        elif fault in ("400", "401", "404", "500"):
            told = {"error": {"message": f"{fault} wrong, and your key {key} too"}}
            self.send(int(fault), json.dumps(told).encode())
        elif fault == "context":
            self.send(400, b'{"error": {"message": "maximum context length is 5 tokens"}}')
        elif fault == "stall":
            time.sleep(3)
            self.close_connection = True
        elif fault == "drip":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            for _ in range(30):
                self.wfile.write(b" ")
                time.sleep(0.1)
            self.close_connection = True
        elif fault == "html":
            self.send(200, b"<html>Welcome</html>", {"Content-Type": "text/html"})
        elif fault == "page":  # only its first letters are shown
            self.send(200, f"<html>{'-' * 60}{key}</html>".encode(), {"Content-Type": "text/html"})
        elif fault == "empty":
            self.send(200, b'{"choices": []}')
        elif fault == "number":
            self.send(200, b"17")
        elif fault == "torn":  # fewer bytes than promised
            self.send_response(200)
            self.send_header("Content-Length", str(len(good)))
            self.end_headers()
            self.wfile.write(good[: len(good) // 2])
            self.close_connection = True
        elif fault == "half":  # JSON that ends too early
            self.send(200, good[: len(good) // 2])
        elif fault == "surrogate":
            self.send(200, good.replace(b"cat", b"c\\ud800t").replace(b"dog", b"d\\ud800g"))
        elif fault == "gone":
            self.close_connection = True
        else:
            raise AssertionError(fault)

    def send(self, status, data, headers=()):
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **dict(headers)}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle(self):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the client has given up
            super().handle()

    def log_message(self, *_):
        pass
