"""The agent of the guide's Clone model 6 client on libzmq, as its clone.c has it.

It has two servers, and to each a DEALER and a SUB from the beginning; its PUB is
connected to both and sends each KVSET to both. It asks for the snapshot at once, at
most twice without an answer, leaves a server that is silent, and knows a server's
silence only: HUGZ is as good as any update. Two things are not the guide's: the new
map is built beside the old one, since keys that were deleted meanwhile would stay,
and --timeout stands in the place of five seconds.
"""

import argparse
import struct
import time
import uuid

import zmq

from lines import Commands, Later, decode, digest, encode, event

SEQUENCE = struct.Struct(">q")

INITIAL, SYNCING, ACTIVE = "INITIAL", "SYNCING", "ACTIVE"


class Server:
    def __init__(self, context, at, subtree):
        host, _, port = at.rpartition(":")
        self.at = at
        self.requests = 0
        self.snapshot = context.socket(zmq.DEALER)
        self.subscriber = context.socket(zmq.SUB)
        for offset, s in enumerate((self.snapshot, self.subscriber)):
            s.linger = 0
            s.rcvhwm = s.sndhwm = 0
            s.connect("tcp://%s:%d" % (host, int(port) + offset))
        self.subscriber.setsockopt(zmq.SUBSCRIBE, subtree)
        self.subscriber.setsockopt(zmq.SUBSCRIBE, b"HUGZ")
        self.collector = "tcp://%s:%d" % (host, int(port) + 2)


class Agent:
    def __init__(self, args):
        self.args = args
        self.subtree = args.subtree.encode("ascii")
        self.silence = args.timeout / 1000
        self.context = zmq.Context()
        # An XPUB is a PUB that tells of subscriptions: a test sends nothing before
        # both servers listen.
        self.publisher = self.context.socket(zmq.XPUB)
        self.publisher.setsockopt(zmq.XPUB_VERBOSER, 1)
        self.publisher.linger = 0
        self.publisher.sndhwm = 0
        self.servers = []
        for at in args.server[:2]:
            s = Server(self.context, at, self.subtree)
            self.publisher.connect(s.collector)
            self.servers.append(s)
        self.current = 0
        self.pairs = {}
        self.coming = {}
        self.sequence = 0
        self.subscribed = 0
        self.writing = None
        self.sent = 0
        self.stats = {"syncs": 0, "failovers": 0, "twice": 0, "malformed": 0}
        self.applied = set()
        self.enter(INITIAL)

    def enter(self, state):
        self.state = state
        event("state", state=state, server=self.servers[self.current].at)
        if state == INITIAL:
            server = self.servers[self.current]
            if server.requests < 2:
                server.snapshot.send_multipart([b"ICANHAZ?", self.subtree])
                server.requests += 1
            self.heard()
            self.enter(SYNCING)

    def heard(self):
        self.expiry = time.monotonic() + self.silence

    def receive(self):
        server = self.servers[self.current]
        s = server.snapshot if self.state == SYNCING else server.subscriber
        if not s.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            return False
        frames = s.recv_multipart()
        self.heard()
        if len(frames) != 5 or len(frames[1]) != SEQUENCE.size:
            self.stats["malformed"] += 1
            return True
        key, number, identifier, _, value = frames
        (sequence,) = SEQUENCE.unpack(number)
        if self.state == SYNCING:
            server.requests = 0
            if key == b"KTHXBAI":
                self.sequence = sequence
                self.pairs, self.coming = self.coming, {}
                self.stats["syncs"] += 1
                self.enter(ACTIVE)
            else:
                self.coming[key] = value
        elif sequence > self.sequence:
            self.sequence = sequence
            if key != b"HUGZ":
                self.store(key, value)
                if identifier:
                    self.stats["twice"] += identifier in self.applied
                    self.applied.add(identifier)
        return True

    def store(self, key, value):
        if value:
            self.pairs[key] = value
        else:
            self.pairs.pop(key, None)

    def send(self, key, value, properties=b""):
        frames = [key, SEQUENCE.pack(0), uuid.uuid4().bytes, properties, value]
        self.publisher.send_multipart(frames)
        self.store(key, value)

    # What a test asks for.

    def set(self, key, value="", ttl=0):
        self.send(decode(key), decode(value), b"ttl=%d\n" % ttl)

    def write(self, prefix, keys, on=True):
        """Sends updates of so many keys in turn, until it is called with on=False,
        which answers with the number of updates."""
        self.writing = (decode(prefix), keys) if on else None
        return {"sent": self.sent}

    def write_some(self):
        if self.writing:
            prefix, keys = self.writing
            self.send(prefix + b"%d" % (self.sent % keys), b"%d" % self.sent)
            self.sent += 1

    def wait_subscribed(self, count=2):
        return Later(lambda: {} if self.subscribed >= count else None, 120)

    def wait_active(self, server=""):
        """Answers once the agent is ACTIVE at a server, or at any."""
        return Later(
            lambda: {}
            if self.state == ACTIVE and server in ("", self.servers[self.current].at)
            else None,
            120,
        )

    def wait(self, key, value=""):
        key, value = decode(key), decode(value)
        return Later(
            lambda: {} if self.state == ACTIVE and self.pairs.get(key, b"") == value else None,
            120,
        )

    def digest(self):
        return {"sequence": self.sequence, "count": len(self.pairs), "sha256": digest(self.pairs)}

    def dump(self):
        pairs = [{"key": encode(k), "value": encode(v)} for k, v in self.pairs.items()]
        return {"sequence": self.sequence, "pairs": pairs}

    def run(self):
        commands = Commands(
            {
                "set": self.set,
                "write": self.write,
                "wait": self.wait,
                "wait_active": self.wait_active,
                "wait_subscribed": self.wait_subscribed,
                "digest": self.digest,
                "dump": self.dump,
                "stats": lambda: dict(self.stats),
            }
        )
        poller = zmq.Poller()
        poller.register(commands.fd, zmq.POLLIN)
        event("ready", libzmq=zmq.zmq_version())
        while True:
            while self.publisher.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                self.subscribed += 1 if self.publisher.recv()[:1] == b"\1" else -1
            for _ in range(100):
                if not self.receive():
                    break
            self.write_some()
            if time.monotonic() >= self.expiry:
                self.current = (self.current + 1) % len(self.servers)
                self.stats["failovers"] += 1
                self.enter(INITIAL)
            if poller.poll(2):
                commands.run()
            commands.settle()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--server", action="append", required=True, help="host:P; two")
    p.add_argument("--subtree", default="")
    p.add_argument("--timeout", type=int, default=5000, help="milliseconds of silence")
    Agent(p.parse_args()).run()


if __name__ == "__main__":
    main()
