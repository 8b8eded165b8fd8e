"""
The partner, on this machine: an HTTP server that notes when it was called.

    python -m shop.partner        # on port 8000; says once a second how often it was called
"""

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Partner(ThreadingHTTPServer):
    """Answers every GET; *calls* are the instants of all of them, on the monotonic clock."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port=0):
        super().__init__(("127.0.0.1", port), Answer)
        self.calls = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error):
        self.shutdown()
        self.server_close()


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.calls.append(time.monotonic())
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_args):
        """Say nothing of single calls."""


def main():
    with Partner(8000) as partner:
        print(f"The partner listens on {partner.url}")
        while True:
            before = len(partner.calls)
            time.sleep(1)
            print(f"{len(partner.calls) - before} calls in the last second")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
