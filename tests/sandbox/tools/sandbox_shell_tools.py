"""A tool server that runs the shell commands it is sent, and imports a module late; Python's standard library only."""

import http.server
import os
import subprocess
from pathlib import Path


class Tools(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        import statistics

        command = self.rfile.read(int(self.headers["Content-Length"])).decode()
        done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{statistics.mean([1, 3])} {done.stdout.decode()}".encode())


if __name__ == "__main__":
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tools) as server:
        Path(os.environ["MCP_PORT_FILE"]).write_text(str(server.server_port))
        server.serve_forever()
