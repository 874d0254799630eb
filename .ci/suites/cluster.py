"""Three servers as one cache, with a node that dies and one that hangs.

cluster.py ENTRESOL NUTCRACKER_YML WORK [SCENE ...]

Every scene has three servers and one way to reach them, and runs in a process of its own. A client
gets one key after the other, stores what it misses and overwrites one key in ten with a newer version. It
goes on until a phase's end is seen, not for a given time: until requests succeed again, until the
node holds items again. Printed is what the client saw by the second.
"""

import asyncio
import json
import multiprocessing
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time

import emcache
import pylibmc
from pymemcache.client.base import Client
from pymemcache.client.hash import HashClient

KEYS = 1200
PACE = 0.002
STREAK = 400
PATIENCE = 60


class Failure(Exception):
    """A check that does not hold."""


def check(holds, message):
    if not holds:
        raise Failure(message)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for it in sockets:
        it.bind(("127.0.0.1", 0))
    ports = [it.getsockname()[1] for it in sockets]
    for it in sockets:
        it.close()
    return ports


def wait_for_port(port, process, log):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.02)
    raise Failure(f"nothing listens on port {port}:\n{open(log).read()}")


class Node:
    """One `entresol serve`; with `keeps` its values outlive the process."""

    def __init__(self, entresol, work, name, port, flags, keeps):
        self.port, self.log = port, f"{work}/{name}.log"
        self.command = [entresol, "serve", "--admin", "off", "--listen", f"127.0.0.1:{port}", *flags]
        if keeps:
            self.command += ["--medium", f"file:{work}/{name}.values", "--medium-quota", "64MiB",
                             "--restart-from", f"{work}/{name}.restart"]
        self.start()

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        wait_for_port(self.port, self.process, self.log)

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()

    def items(self):
        client = Client(("127.0.0.1", self.port), timeout=10)
        return client.stats()[b"curr_items"]


class Proxy:
    """nutcracker with the documented configuration, on this scene's ports."""

    def __init__(self, pattern, work, nodes, eject):
        self.port, statistics = free_ports(2)
        text = open(pattern).read().replace("127.0.0.1:22121", f"127.0.0.1:{self.port}")
        for written, node in zip((11311, 11312, 11313), nodes):
            text = text.replace(f"127.0.0.1:{written}:", f"127.0.0.1:{node.port}:")
        if not eject:
            text = text.replace("auto_eject_hosts: true", "auto_eject_hosts: false")
        path, log = f"{work}/nutcracker.yml", f"{work}/nutcracker.log"
        with open(path, "w") as file:
            file.write(text)
        self.process = subprocess.Popen(
            ["nutcracker", "-c", path, "-o", log, "-a", "127.0.0.1", "-s", str(statistics)])
        wait_for_port(self.port, self.process, log)

    def end(self):
        self.process.kill()
        self.process.wait()


class Plain:
    """pymemcache's client of one address, here nutcracker's; connects anew after an error."""

    def __init__(self, port):
        self.client = Client(("127.0.0.1", port), timeout=5)

    def get(self, key):
        return self.client.get(key)

    def set(self, key, value):
        return self.client.set(key, value, noreply=False)


class Rendezvous(Plain):
    """pymemcache's HashClient, which places keys by rendezvous hashing."""

    def __init__(self, nodes):
        self.client = HashClient([("127.0.0.1", node.port) for node in nodes], timeout=0.4,
                                 connect_timeout=0.4, retry_attempts=1, retry_timeout=0.2,
                                 dead_timeout=2)


class Ketama:
    """pylibmc (libmemcached), which places keys by ketama."""

    def __init__(self, nodes):
        self.client = pylibmc.Client([f"127.0.0.1:{node.port}" for node in nodes])
        self.client.behaviors = {"ketama": True, "connect_timeout": 400, "receive_timeout": 400000,
                                 "_poll_timeout": 400, "remove_failed": 2, "dead_timeout": 2}

    def get(self, key):
        return self.client.get(key)

    def set(self, key, value):
        return self.client.set(key, value)


class Load:
    """Requests of one client, what came of them by the second, and the versions acknowledged."""

    def __init__(self, client, seed):
        self.client, self.random = client, random.Random(seed)
        self.acknowledged = {}
        self.version = self.turn = 0
        self.begun = time.monotonic()
        self.seconds = []
        self.events = []
        self.last = {}
        self.stale = 0

    def store(self, key):
        self.version += 1
        if self.client.set(key, b"%d" % self.version):
            self.acknowledged[key] = self.version
            return "stored"
        return "error"

    def ask(self, key):
        if self.random.random() < 0.1:
            return self.store(key)
        value = self.client.get(key)
        if value is None:
            self.store(key)
            return "miss"
        if int(value) < self.acknowledged.get(key, 0):
            self.stale += 1
            return "stale"
        return "hit"

    def request(self, key):
        begun = time.monotonic()
        try:
            outcome = self.ask(key)
        except Exception:  # Each client has errors of its own; all mean that no answer came.
            outcome = "error"
        ended = time.monotonic()
        second = int(ended - self.begun)
        while len(self.seconds) <= second:
            self.seconds.append({"hit": 0, "miss": 0, "stored": 0, "stale": 0, "error": 0, "wait": 0.0})
        self.seconds[second][outcome] += 1
        self.last[outcome] = ended - self.begun
        self.seconds[second]["wait"] = max(self.seconds[second]["wait"], ended - begun)
        time.sleep(max(0.0, PACE - (ended - begun)))
        return outcome

    def event(self, what):
        """Notes what happens now; returns the time since the first request."""
        now = time.monotonic() - self.begun
        self.events.append((now, what))
        return now

    def since(self, event, *outcomes):
        """Time from an event to the last request with one of these outcomes; 0 if none came."""
        return max(0.0, max(self.last.get(it, 0.0) for it in outcomes) - event)

    def fill(self):
        for number in range(KEYS):
            check(self.store(b"key-%d" % number) == "stored", f"key-{number} cannot be stored")

    def next_key(self):
        """Keys in an order that comes by each once a round and jumps from node to node."""
        self.turn += 1
        return b"key-%d" % (self.turn * 7 % KEYS)

    def until(self, what, end):
        """Sends requests until `end(streak of answers, streak of hits)`."""
        begun = time.monotonic()
        answers = hits = 0
        while not end(answers, hits):
            check(time.monotonic() < begun + PATIENCE,
                  f"{what}: not within {PATIENCE} s\n{self.table()}")
            outcome = self.request(self.next_key())
            answers = 0 if outcome == "error" else answers + 1
            hits = 0 if outcome in ("miss", "error") else hits + 1
        self.event(what)

    def table(self):
        lines = ["second  hits  misses  stale  errors  longest wait"]
        for number, row in enumerate(self.seconds):
            marks = "; ".join(what for at, what in self.events if int(at) == number)
            lines.append(f"{number:6} {row['hit']:5} {row['miss']:7} {row['stale']:6}"
                         f" {row['error']:7} {row['wait'] * 1000:10.0f} ms  {marks}".rstrip())
        return "\n".join(lines)


def spread(nodes, kept):
    """Checks that all keys are there and that no node holds far less or more than a third."""
    items = [node.items() for node in nodes]
    check(sum(items) == kept, f"{items} items, {kept} stored")
    check(all(0.15 * kept < it < 0.55 * kept for it in items), f"{items} is not an even spread")
    return items


def fault(reach, kind, seed, nodes, leaves_out, fresh):
    """One node of three is killed, hangs or is restarted, and comes back.

    With `leaves_out`, requests are to succeed without it. With `fresh`, nothing may be answered
    that was overwritten meanwhile: a node that was left out must not come back with what it held.
    """
    load = Load(reach, seed)
    load.fill()
    items = spread(nodes, KEYS)
    load.until("all answer", lambda answers, hits: hits >= STREAK)
    take_away(nodes[1], kind)
    gone = load.event(f"a node is {kind}")
    if leaves_out:
        load.until("requests succeed without it", lambda answers, hits: answers >= STREAK)
    else:
        failed = sum(load.request(load.next_key()) == "error" for _ in range(200))
        check(20 <= failed <= 140, f"{failed} of 200 requests failed, a third was expected to")
        load.event("a third of the requests fails, the others are answered")
    without = load.since(gone, "error")
    bring_back(nodes[1], kind)
    returned = load.event("it is back")
    held = nodes[1].items()
    load.until("it takes part again", lambda answers, hits: hits >= STREAK and (
        nodes[1].items() > 0.1 * KEYS))
    back = load.since(returned, "error", "miss", "stale")
    if fresh:
        check(load.stale == 0, f"{load.stale} gets were answered with what had been overwritten")
    if kind == "restarted":
        check(held == items[1], f"{held} of {items[1]} items came back from a clean stop")
    return {"items": items, "errors": sum(it["error"] for it in load.seconds),
            "seconds to the last error": without, "seconds from its return to the last miss": back,
            "items it came back with": held, "stale": load.stale, "table": load.table()}


def take_away(node, kind):
    if kind == "hung":
        node.signal(signal.SIGSTOP)
    elif kind == "restarted":
        node.signal(signal.SIGTERM)
        node.process.wait(PATIENCE)
    else:
        node.end()


def bring_back(node, kind):
    if kind == "hung":
        node.signal(signal.SIGCONT)
    else:
        node.start()


def three(entresol, work, keeps=False, flags=()):
    return [Node(entresol, work, name, port, flags, keeps)
            for name, port in zip(("one", "two", "three"), free_ports(3))]


def by_proxy(setting, kind, eject, keeps=False, fresh=True):
    nodes = three(setting.entresol, setting.work, keeps)
    proxy = Proxy(setting.pattern, setting.work, nodes, eject)
    try:
        return fault(Plain(proxy.port), kind, 1, nodes, eject, fresh)
    finally:
        for it in [proxy, *nodes]:
            it.end()


def by_client(setting, client, kind, leaves_out=True, fresh=True):
    nodes = three(setting.entresol, setting.work)
    try:
        return fault(client(nodes), kind, 2, nodes, leaves_out, fresh)
    finally:
        for it in nodes:
            it.end()


def commands(setting):
    """Every command that nutcracker forwards, with keys on all nodes."""
    nodes = three(setting.entresol, setting.work)
    proxy = Proxy(setting.pattern, setting.work, nodes, True)
    try:
        client = Client(("127.0.0.1", proxy.port), timeout=10, default_noreply=False)
        names = [f"key-{number}" for number in range(500)]
        for name in names:
            check(client.set(name, b"1"), f"set {name}")
        items = spread(nodes, len(names))
        check(client.get_many(names) == dict.fromkeys(names, b"1"), "get of 500 keys on three nodes")
        for name in names[:50]:
            check(client.incr(name, 41) == 42 and client.decr(name, 2) == 40, f"incr, decr {name}")
            check(client.append(name, b"!") and client.prepend(name, b"?"), f"append {name}")
            value, token = client.gets(name)
            check(value == b"?40!", f"{name} is {value}")
            check(client.cas(name, b"new", token) is True, f"cas {name}")
            check(client.cas(name, b"late", token) is False, f"a second cas {name}")
            check(client.touch(name, 1000) and client.add(name, b"x") is False, f"touch, add {name}")
            check(client.delete(name) and client.get(name) is None, f"delete {name}")
        return {"items": items}
    finally:
        for it in [proxy, *nodes]:
            it.end()


def discovery(setting):
    """A client that is told one address and learns the others by `config get cluster`."""
    ports = free_ports(3)
    nodes = []
    try:
        for number, port in enumerate(ports):
            path = f"{setting.work}/node-{number}.toml"
            with open(path, "w") as file:
                listed = ", ".join(f'"127.0.0.1:{it}"' for it in ports)
                file.write(f'admin = "off"\n[[tenant]]\nname = "main"\ncluster = [{listed}]\n'
                           f'listen = "127.0.0.1:{port}"\n')
            node = Node.__new__(Node)
            node.port, node.log = port, f"{setting.work}/node-{number}.log"
            node.command = [setting.entresol, "serve", "--config", path]
            node.start()
            nodes.append(node)
        asyncio.run(discover(ports[0]))
        return {"items": spread(nodes, KEYS)}
    finally:
        for it in nodes:
            it.end()


async def discover(port):
    client = await emcache.create_client([emcache.MemcachedHostAddress("127.0.0.1", port)],
                                         autodiscovery=True, timeout=10.0)
    found = len(client.cluster_managment().nodes())
    check(found == 3, f"the client found {found} nodes")
    for number in range(KEYS):
        await client.set(b"key-%d" % number, b"%d" % number)
    for number in range(KEYS):
        item = await client.get(b"key-%d" % number)
        check(item is not None and item.value == b"%d" % number, f"key-{number} is {item}")
    await client.close()


SCENES = {
    "commands through nutcracker": commands,
    "emcache finds the nodes": discovery,
    "nutcracker ejects, a node is killed": lambda it: by_proxy(it, "killed", True),
    "nutcracker ejects, a node hangs": lambda it: by_proxy(it, "hung", True, fresh=False),
    "nutcracker does not eject, a node that keeps its values is restarted":
        lambda it: by_proxy(it, "restarted", False, keeps=True),
    "pymemcache's HashClient, a node is killed": lambda it: by_client(it, Rendezvous, "killed"),
    "pymemcache's HashClient, a node hangs":
        lambda it: by_client(it, Rendezvous, "hung", fresh=False),
    "pylibmc's ketama, a node is killed": lambda it: by_client(it, Ketama, "killed"),
    "pylibmc's ketama, a node hangs": lambda it: by_client(it, Ketama, "hung", leaves_out=False),
}


class Setting:
    """Where a scene finds its programs and keeps its files."""

    def __init__(self, entresol, pattern, work):
        self.entresol, self.pattern, self.work = entresol, pattern, work


def run(arguments):
    name, setting = arguments
    os.makedirs(setting.work, exist_ok=True)
    try:
        return name, SCENES[name](setting), None
    except Exception as error:
        return name, {}, f"{type(error).__name__}: {error}"


def main():
    entresol, pattern, work, *chosen = sys.argv[1:]
    names = [it for it in SCENES if not chosen or any(re.search(word, it) for word in chosen)]
    settings = [(name, Setting(entresol, pattern, f"{work}/{number}"))
                for number, name in enumerate(names)]
    failed = 0
    with multiprocessing.Pool(5) as pool:
        for name, seen, error in pool.imap(run, settings):
            print(f"-- {name}")
            if "table" in seen:
                print(seen.pop("table"))
            print(json.dumps({key: round(it, 1) if isinstance(it, float) else it
                              for key, it in seen.items()}))
            if error:
                print(f"FAILED: {error}")
            failed += error is not None
    print(f"suite cluster: {len(names) - failed} of {len(names)} scenes passed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
