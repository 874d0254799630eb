#!/usr/bin/env python3
"""Store and fetch arrays of many MiB in an Entresol server, without a copy of one's own.

    python3 arrays.py HOST:PORT [MIB] [ARRAYS]

`Arrays` takes and fills anything that has the buffer protocol: NumPy arrays, `array.array`, tensors
through `numpy()`, `bytearray`. Run as a program it stores arrays, fetches them again in one request,
compares them, and prints how fast that was. It needs Python 3.8 and nothing else.
"""

import os
import socket
import sys
import time

# More buffers than this are not sent by one system call.
BUFFERS_MAX = 512


class Arrays:
    """A connection to a server of memcached's protocol for large arrays."""

    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.read_ahead = b""

    def store(self, arrays):
        """Stores a dict of keys and arrays in one request; raises ValueError for what is refused."""
        parts = []
        for key, array in arrays.items():
            view = memoryview(array).cast("B")
            parts += [b"set %s 0 0 %d\r\n" % (key.encode(), view.nbytes), view, b"\r\n"]
        self._send(parts)
        refused = {}
        for key in arrays:
            reply = self._line()
            if reply != b"STORED":
                refused[key] = reply.decode()
        if refused:
            raise ValueError("not stored: %s" % refused)

    def fetch(self, arrays):
        """Fills the arrays of a dict in one request; returns the keys that were found.

        Raises ValueError if an array has another size than the value of its key.
        """
        self._send([b"get %s\r\n" % " ".join(arrays).encode()])
        found = []
        while True:
            line = self._line()
            if line == b"END":
                return found
            word, key, _, length = line.split()
            view = memoryview(arrays[key.decode()]).cast("B")
            if word != b"VALUE" or view.nbytes != int(length):
                self.socket.close()
                raise ValueError("%r for an array of %d bytes" % (line, view.nbytes))
            self._fill(view)
            self._fill(memoryview(bytearray(2)))
            found.append(key.decode())

    def _send(self, parts):
        parts = [memoryview(part) for part in parts]
        while parts:
            sent = self.socket.sendmsg(parts[:BUFFERS_MAX])
            while parts and sent >= parts[0].nbytes:
                sent -= parts.pop(0).nbytes
            if sent:
                parts[0] = parts[0][sent:]

    def _fill(self, view):
        ahead = min(len(self.read_ahead), view.nbytes)
        view[:ahead] = self.read_ahead[:ahead]
        self.read_ahead = self.read_ahead[ahead:]
        while ahead < view.nbytes:
            count = self.socket.recv_into(view[ahead:])
            if count == 0:
                raise ConnectionError("the server has closed the connection")
            ahead += count

    def _line(self):
        # A little at a time: what lies behind the line belongs into an array.
        while b"\r\n" not in self.read_ahead:
            more = self.socket.recv(256)
            if not more:
                raise ConnectionError("the server has closed the connection")
            self.read_ahead += more
        line, self.read_ahead = self.read_ahead.split(b"\r\n", 1)
        return line


def main():
    if len(sys.argv) < 2 or ":" not in sys.argv[1]:
        sys.exit("usage: arrays.py HOST:PORT [MIB] [ARRAYS]")
    host, port = sys.argv[1].rsplit(":", 1)
    mib = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 4
    client = Arrays(host, int(port))
    block = os.urandom(1 << 20)
    stored = {"array%d" % number: bytearray(block * mib) for number in range(count)}
    for number, array in enumerate(stored.values()):
        array[number] ^= 1
    began = time.monotonic()
    try:
        client.store(stored)
    except ValueError as error:
        sys.exit("%s\nA server for them: entresol serve --value-limit %dMiB -m %d"
                 % (error, mib, 3 * mib * count + 64))
    set_s = time.monotonic() - began
    fetched = {key: bytearray(mib << 20) for key in stored}
    began = time.monotonic()
    found = client.fetch(fetched)
    get_s = time.monotonic() - began
    if len(found) < count:
        sys.exit("%d of %d arrays were found: the quota is too small" % (len(found), count))
    if fetched != stored:
        sys.exit("an array came back with other bytes")
    total = mib * count * 1.048576
    print("%d arrays of %d MiB came back: stored at %.0f MB/s, fetched at %.0f MB/s"
          % (count, mib, total / set_s, total / get_s))


if __name__ == "__main__":
    main()
