"""A CHP server on libzmq that behaves as the guide's model 6 primary does.

RFC 12 as far as it goes, and where the guide's programs differ from it or from
each other, as they do: --style c or --style py. It is one thread on one
poller, so that a snapshot is always a consistent cut.
"""

import argparse
import math
import os
import socket
import struct
import time

import zmq

from lines import Commands, Failure, Later, decode, digest, encode, event, pattern

SEQUENCE = struct.Struct(">q")

# Seconds between two looks for expired keys.
TICK = 0.05


class Pair:
    """What the map holds for a key. ttl is the time of expiry, 0 for none."""

    __slots__ = ("sequence", "uuid", "properties", "value", "ttl")

    def __init__(self, sequence, uuid, properties, value, ttl):
        self.sequence = sequence
        self.uuid = uuid
        self.properties = properties
        self.value = value
        self.ttl = ttl


def parse_properties(bytes):
    """The list of (name, value) of a properties frame, or None if it is none."""
    if not bytes:
        return []
    if not bytes.endswith(b"\n"):
        return None
    properties = []
    for line in bytes[:-1].split(b"\n"):
        name, equals, value = line.partition(b"=")
        if not name or not equals:
            return None
        properties.append((name, value))
    return properties


def format_properties(properties):
    return b"".join(name + b"=" + value + b"\n" for name, value in properties)


def seconds_to_live(properties, style):
    """The ttl of a KVSET in seconds; text that is no number counts as none."""
    for name, value in properties:
        if name == b"ttl":
            try:
                seconds = int(value) if style == "c" else float(value)
            except ValueError:
                return 0
            return max(0, seconds) if math.isfinite(seconds) else 0
    return 0


class Deaf:
    """A publisher that drops everything."""

    def send_multipart(self, frames):
        pass


class Server:
    def __init__(self, args):
        self.style = args.style
        self.interval = args.heartbeat / 1000
        self.hugz = True
        self.answering = True
        self.sequence = args.sequence
        self.pairs = {}
        self.expiring = set()
        self.stats = {"kvset": 0, "malformed": 0, "snapshots": 0, "subtrees": []}
        self.context = zmq.Context()
        self.port = self._bind(args.host, args.port)
        self.next_hugz = time.monotonic() + self.interval
        self.next_look = 0

    def _bind(self, host, port):
        """Binds P, P+1 and P+2; for port 0 it looks for three free ones."""
        for _ in range(1 if port else 100):
            p = port or free_port(host)
            sockets = []
            try:
                for kind, at in ((zmq.ROUTER, p), (zmq.PUB, p + 1), (zmq.SUB, p + 2)):
                    s = self.context.socket(kind)
                    sockets.append(s)
                    s.linger = 0
                    # With a limit, libzmq drops KVSYNC and KVPUB beyond it
                    # without notice; a loss here would look like ours.
                    s.sndhwm = s.rcvhwm = 0
                    s.bind("tcp://%s:%d" % (host, at))
            except zmq.ZMQError as e:
                for s in sockets:
                    s.close()
                if e.errno != zmq.EADDRINUSE or port:
                    raise
                continue
            self.snapshot, self.publisher, self.collector = sockets
            self.collector.setsockopt(zmq.SUBSCRIBE, b"")
            return p
        raise SystemExit("no three consecutive free ports")

    # What the protocol asks for.

    def take_request(self):
        frames = self.snapshot.recv_multipart()
        if len(frames) != 3 or frames[1] != b"ICANHAZ?":
            self.stats["malformed"] += 1
            return
        identity, _, subtree = frames
        self.stats["snapshots"] += 1
        self.stats["subtrees"].append(encode(subtree))
        if not self.answering:
            return
        for key, pair in self.pairs.items():
            if key.startswith(subtree):
                properties = self._absolute(pair)
                sequence = SEQUENCE.pack(pair.sequence)
                self.snapshot.send_multipart(
                    [identity, key, sequence, pair.uuid, properties, pair.value]
                )
        sequence = SEQUENCE.pack(self.sequence)
        if self.style == "c":
            last = [sequence, b"", b"", b""]
        else:
            last = [sequence, os.urandom(16), b"", subtree]
        self.snapshot.send_multipart([identity, b"KTHXBAI"] + last)

    def _absolute(self, pair):
        """The stored properties, where ttl has become the time of expiry.

        Its unit differs: milliseconds in the C programs, seconds in Python's.
        """
        if not pair.ttl:
            return pair.properties
        if self.style == "c":
            at = b"%d" % int(pair.ttl * 1000)
        else:
            at = b"%f" % pair.ttl
        properties = parse_properties(pair.properties)
        return format_properties(
            [(name, at if name == b"ttl" else value) for name, value in properties]
        )

    def take_update(self):
        frames = self.collector.recv_multipart()
        properties = parse_properties(frames[3]) if len(frames) == 5 else None
        if (
            properties is None
            or not 0 < len(frames[0]) <= 255
            or len(frames[1]) != SEQUENCE.size
            or len(frames[2]) not in (0, 16)
        ):
            self.stats["malformed"] += 1
            return
        self.stats["kvset"] += 1
        key, _, uuid, bytes, value = frames
        self.update(key, uuid, bytes, value)

    def update(self, key, uuid, bytes, value):
        self.sequence += 1
        sequence = SEQUENCE.pack(self.sequence)
        self.publisher.send_multipart([key, sequence, uuid, bytes, value])
        self.expiring.discard(key)
        if not value:
            self.pairs.pop(key, None)
            return
        ttl = seconds_to_live(parse_properties(bytes), self.style)
        if ttl:
            ttl += time.time()
            self.expiring.add(key)
        self.pairs[key] = Pair(self.sequence, uuid, bytes, value, ttl)

    def expire(self):
        if time.monotonic() < self.next_look:
            return
        self.next_look = time.monotonic() + TICK
        now = time.time()
        for key in [k for k in self.expiring if self.pairs[k].ttl <= now]:
            pair = self.pairs.pop(key)
            self.expiring.discard(key)
            self.sequence += 1
            sequence = SEQUENCE.pack(self.sequence)
            properties = self._absolute(pair)
            self.publisher.send_multipart([key, sequence, pair.uuid, properties, b""])

    def send_hugz(self):
        uuid = b"" if self.style == "c" else os.urandom(16)
        sequence = SEQUENCE.pack(self.sequence)
        self.publisher.send_multipart([b"HUGZ", sequence, uuid, b"", b""])

    # What a test asks for.

    def handlers(self):
        return {
            "set": self.set,
            "lose": self.lose,
            "fill": self.fill,
            "publish": self.publish,
            "dump": self.dump,
            "digest": self.digest,
            "stats": lambda: self.stats,
            "wait_count": self.wait_count,
            "hugz": self.switch_hugz,
            "answer": self.switch_answers,
            "sequence": self.set_sequence,
        }

    def set(self, key, value="", properties="", uuid=""):
        bytes = decode(properties)
        if parse_properties(bytes) is None:
            raise Failure("bad properties")
        self.update(decode(key), decode(uuid), bytes, decode(value))
        return {"sequence": self.sequence}

    def lose(self, key, value=""):
        """A set that no subscriber hears of, as beyond a high-water mark."""
        publisher, self.publisher = self.publisher, Deaf()
        try:
            self.update(decode(key), b"", b"", decode(value))
        finally:
            self.publisher = publisher
        return {"sequence": self.sequence}

    def fill(self, prefix, count, size, seed=0):
        """Sets prefix+0 to prefix+(count-1) to generated values."""
        for i in range(count):
            key = decode(prefix) + b"%d" % i
            self.update(key, os.urandom(16), b"", pattern(seed, i, 0, size))
        return {"sequence": self.sequence}

    def publish(self, frames):
        """Sends frames to the subscribers as they are, good or bad."""
        self.publisher.send_multipart([decode(f) for f in frames])

    def dump(self):
        pairs = [
            {
                "key": encode(key),
                "sequence": p.sequence,
                "uuid": encode(p.uuid),
                "properties": encode(p.properties),
                "value": encode(p.value),
                "ttl": int(p.ttl * 1000),
            }
            for key, p in self.pairs.items()
        ]
        return {"sequence": self.sequence, "pairs": pairs}

    def digest(self):
        return {
            "sequence": self.sequence,
            "count": len(self.pairs),
            "sha256": digest({k: p.value for k, p in self.pairs.items()}),
        }

    def wait_count(self, count, seconds=120):
        """Answers once the map holds exactly count pairs."""
        return Later(
            lambda: {"count": count} if len(self.pairs) == count else None, seconds
        )

    def switch_hugz(self, on):
        self.hugz = on
        self.next_hugz = time.monotonic() + self.interval

    def switch_answers(self, on):
        """off: take snapshot requests and leave them without an answer."""
        self.answering = on

    def set_sequence(self, value):
        self.sequence = value

    def run(self):
        commands = Commands(self.handlers())
        event("ready", port=self.port, libzmq=zmq.zmq_version())
        poller = zmq.Poller()
        for readable in (self.snapshot, self.collector, commands.fd):
            poller.register(readable, zmq.POLLIN)
        while True:
            wait = min(self.next_hugz - time.monotonic(), TICK)
            ready = dict(poller.poll(max(0, int(wait * 1000))))
            if self.snapshot in ready:
                self.take_request()
            if self.collector in ready:
                # Several a turn: at one a turn the polling would be most of
                # the work. Bounded, so that nothing else has to wait long.
                for _ in range(100):
                    self.take_update()
                    if not self.collector.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                        break
            if commands.fd in ready:
                commands.run()
            self.expire()
            if time.monotonic() >= self.next_hugz:
                self.next_hugz = time.monotonic() + self.interval
                if self.hugz:
                    self.send_hugz()
            commands.settle()


def free_port(host):
    with socket.socket() as s:
        s.bind((host, 0))
        # P+2 must be a port as well.
        return min(s.getsockname()[1], 65533)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=0, help="P; 0 takes free ones")
    p.add_argument("--heartbeat", type=int, default=1000, help="milliseconds")
    p.add_argument("--sequence", type=int, default=0, help="to count on from")
    p.add_argument("--style", choices=("c", "py"), default="c")
    Server(p.parse_args()).run()


if __name__ == "__main__":
    main()
