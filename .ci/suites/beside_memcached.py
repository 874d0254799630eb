"""Random requests to two memcached servers; the replies must agree.

CAS numbers are each server's own: a request that needs one takes what that server said last.
Times in replies may differ by a second. Every request is followed by `mn`, so that it is known
where its replies end, however many there are.
"""

import random
import re
import socket
import sys

KEYS = [b"a", b"bb", b"counter", b"x" * 250, b"k" * 40]
VALUES = [b"", b"0", b"1", b"10", b"99", b"hello", b"18446744073709551615", b"007", b" 5", b"5 ",
          b"-1", b"v" * 100, b"w" * 3000, b"two\r\nlines", b"z" * 70000]
EXPTIMES = [0, 0, 0, 100, 1000, 2592000, 2000000000, -1]
OPAQUE = b"O123abc"
# Older than any that a server gives out. (0 would mean: do not compare.)
OLD_CAS = 1


class Side:
    """One server: a connection and the CAS that each key was last seen with."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(10)
        self.stream = self.socket.makefile("rb")
        self.cas = {}

    def send(self, pieces):
        """Pieces are bytes, or a (key, real) that stands for that key's CAS, or an old one."""
        text = b""
        for piece in pieces:
            if isinstance(piece, tuple):
                key, real = piece
                text += b"%d" % (self.cas.get(key, OLD_CAS) if real else OLD_CAS)
            else:
                text += piece
        self.socket.sendall(text)
        return text

    def replies(self, asked_key):
        """All that comes before the `MN` that ends every request, with CAS taken out."""
        lines = []
        while True:
            line = self.stream.readline()
            if not line.endswith(b"\r\n"):
                raise ConnectionError(f"the connection ended in {line!r}")
            words = line.split()
            if words == [b"MN"]:
                return lines
            if words and words[0] in (b"VALUE", b"VA"):
                place = 3 if words[0] == b"VALUE" else 1
                data = self.stream.read(int(words[place]) + 2)
                lines += self.found(words, place, data, asked_key)
            elif words and len(words[0]) == 2 and words[0].isalpha():
                lines.append(self.meta(words, asked_key))
            else:
                # Which of the two a malformed line gets has changed between versions.
                malformed = line == b"CLIENT_ERROR bad command line format\r\n"
                lines.append(b"ERROR\r\n" if malformed else line)

    def found(self, words, place, data, asked_key):
        if re.fullmatch(rb"\d+ +\r\n", data):
            # memcached pads a number that decr made shorter, unless something holds the item.
            data = data.rstrip() + b"\r\n"
            words[place] = b"%d" % (len(data) - 2)
            words = [word for word in words if not re.fullmatch(rb"s\d+", word)]
        elif re.fullmatch(rb"\d+\r\n", data):
            words = [word for word in words if not re.fullmatch(rb"s\d+", word)]
        if words[0] == b"VALUE" and len(words) == 5:
            self.cas[words[1]] = int(words[4])
            words[4] = b"CAS"
        return [self.meta(words, asked_key), data]

    def meta(self, words, key):
        kept = []
        for word in words:
            if re.fullmatch(rb"c\d+", word):
                self.cas[key] = int(word[1:])
                word = b"cCAS"
            kept.append(word)
        return b" ".join(kept)


def agree(one, other):
    """Equal, but for a second in `t` and `l`."""
    if one == other:
        return True
    time = re.compile(rb" ([tl])(-?\d+)")
    if len(one) != len(other):
        return False
    for mine, theirs in zip(one, other):
        bare = [time.sub(rb" \1", text) for text in (mine, theirs)]
        times = [[int(number) for _, number in time.findall(text)] for text in (mine, theirs)]
        if bare[0] != bare[1] or any(abs(a - b) > 1 for a, b in zip(*times)):
            return False
    return True


def text_request(draw, key):
    value = draw.choice(VALUES)
    exptime = b"%d" % draw.choice(EXPTIMES)
    flags = b"%d" % draw.choice([0, 0, 1, 4294967295])
    verb = draw.choice(
        "get get gets gat gats set set set add replace append prepend cas delete incr decr touch"
        .split()).encode()
    if verb in (b"get", b"gets"):
        keys = b" ".join(draw.choices(KEYS, k=draw.choice([1, 1, 3])))
        return [verb, b" ", keys, b"\r\n"]
    if verb in (b"gat", b"gats"):
        keys = b" ".join(draw.choices(KEYS, k=draw.choice([1, 2])))
        return [verb, b" ", exptime, b" ", keys, b"\r\n"]
    if verb == b"delete":
        return [b"delete ", key, draw.choice([b"", b" 0"]), b"\r\n"]
    if verb in (b"incr", b"decr"):
        delta = draw.choice([b"0", b"1", b"7", b"100", b"18446744073709551615", b"x", b"-1"])
        return [verb, b" ", key, b" ", delta, b"\r\n"]
    if verb == b"touch":
        return [b"touch ", key, b" ", exptime, b"\r\n"]
    head = [verb, b" ", key, b" ", flags, b" ", exptime, b" %d" % len(value)]
    if verb == b"cas":
        head += [b" ", (key, draw.random() < 0.75)]
    return head + [b"\r\n", value, b"\r\n"]


def meta_request(draw, key):
    verb = draw.choice([b"mg", b"mg", b"ms", b"md", b"ma"])
    flags = [OPAQUE] if draw.random() < 0.2 else []
    exptime = b"T%d" % draw.choice([0, 100, 1000])
    optional = {
        b"mg": [b"v", b"f", b"s", b"t", b"k", b"c", b"l", exptime, b"N60", b"R30"],
        b"ms": [b"F9", b"I", b"k", b"c", exptime, b"M" + draw.choice([b"E", b"A", b"P", b"R", b"S"])],
        b"md": [b"I", b"k", b"T45"],
        b"ma": [b"v", b"t", b"k", b"c", b"N60", b"J13", b"D5", exptime,
                b"M" + draw.choice([b"I", b"D"])],
    }[verb]
    flags += draw.sample(optional, draw.randrange(0, 4))
    # What `t` says, and whether T or N holds, depends on their order: one of T and N, then `t`.
    if b"N60" in flags:
        flags = [flag for flag in flags if not flag.startswith(b"T")]
    flags.sort(key=lambda flag: flag == b"t")
    tail = []
    if verb in (b"ms", b"md", b"ma") and draw.random() < 0.2:
        tail = [b" C", (key, draw.random() < 0.67)]
    value = draw.choice(VALUES)
    head = [verb, b" ", key, b" %d" % len(value) if verb == b"ms" else b""]
    head += [b" " + flag for flag in flags] + tail + [b"\r\n"]
    return head + ([value, b"\r\n"] if verb == b"ms" else [])


def other_request(draw, key):
    return draw.choice([
        [b"nonsense\r\n"],
        [b"get ", b"y" * 251, b"\r\n"],
        [b"set ", key, b" 0 0 3\r\nfour\r\n"],
        [b"set ", key, b" 0 0 2000000\r\n", b"b" * 2000000, b"\r\n"],
        [b"mg ", b"y" * 251, b" v\r\n"],
        [b"set ", key, b" 0 0 1 noreply\r\n", b"5\r\nget ", key, b"\r\n"],
        [b"delete ", key, b" noreply\r\nget ", key, b"\r\n"],
        [b"incr ", key, b" 1 noreply\r\nget ", key, b"\r\n"],
        [b"append ", key, b" 0 0 1 noreply\r\n+\r\nget ", key, b"\r\n"],
        [b"touch ", key, b" 50 noreply\r\nmg ", key, b" t\r\n"],
        [b"flush_all noreply\r\nget ", key, b"\r\n"],
        [b"ms ", key, b" 1 q\r\n1\r\n"],
        [b"md ", key, b" q\r\n"],
        [b"ma ", key, b" q v\r\n"],
        [b"mg ", key, b" k q v\r\n"],
        [b"mg YmI= b v\r\n"],
        [b"gets ", key, b"\r\n"],
    ])


def draw_request(draw):
    key = draw.choice(KEYS)
    kind = draw.choices([text_request, meta_request, other_request], [10, 6, 1])[0]
    return key, kind(draw, key)


def main():
    port, beside, count, seed = map(int, sys.argv[1:5])
    shown_before = int(sys.argv[5]) if len(sys.argv) > 5 else 5
    draw = random.Random(seed)
    sides = [Side(port), Side(beside)]
    for side in sides:
        side.send([b"flush_all\r\nmn\r\n"])
        side.replies(b"")
    history, agreed, shown = [], 0, 0
    for number in range(count):
        key, request = draw_request(draw)
        request = request + [b"mn\r\n"]
        sent = sides[0].send(request)
        sides[1].send(request)
        history.append(sent)
        ours, theirs = [side.replies(key) for side in sides]
        if agree(ours, theirs):
            agreed += 1
            continue
        shown += 1
        if shown <= 20:
            print(f"request {number} of seed {seed}: {sent[:300]!r}")
            print(f"  before it: {[text[:90] for text in history[-1 - shown_before:-1]]}")
            print(f"  expected:  {[text[:200] for text in theirs]}")
            print(f"  got:       {[text[:200] for text in ours]}")
        for side in sides:
            # One difference must not make others.
            side.send([b"flush_all\r\nmn\r\n"])
            side.replies(b"")
            side.cas.clear()
    print(f"agreed {agreed}")


if __name__ == "__main__":
    main()
