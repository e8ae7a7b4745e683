"""A CHP client on libzmq: a DEALER, a SUB and a PUB, and a map.

It works as the guide's client does, but for two holes of that one: it asks
for the snapshot only after a message on the SUB showed that the subscriptions
are in force, and builds the new map beside the old one. Updates are not stored
before they come back, so that its map holds only the server's updates.
"""

import argparse
import collections
import struct
import time
import uuid

import zmq

from lines import Commands, Failure, Later, decode, digest, encode, event, pattern

SEQUENCE = struct.Struct(">q")

INITIAL, SYNCING, ACTIVE = "INITIAL", "SYNCING", "ACTIVE"


class Client:
    def __init__(self, args):
        self.args = args
        self.subtree = args.subtree.encode("utf-8")
        self.silence = args.timeout / 1000
        self.context = zmq.Context()
        self.poller = zmq.Poller()
        self.servers = [at.rpartition(":") for at in args.server]
        self.current = -1
        self.snapshot = self.subscriber = None
        self.state = None
        self.pairs = {}
        self.sequence = 0
        self.stats = {"applied": 0, "discarded": 0, "hugz": 0, "syncs": 0, "malformed": 0}
        self.outgoing = collections.deque()
        self.taken = self.sent = 0
        self.subscribed = 0
        self._open_publisher()
        self.next_server()

    # Sockets.

    def _socket(self, kind, offset, server):
        host, _, port = server
        s = self.context.socket(kind)
        s.linger = 0
        # Without limits: messages that libzmq drops would look like another's loss.
        s.sndhwm = s.rcvhwm = 0
        s.connect("tcp://%s:%d" % (host, int(port) + offset))
        return s

    def _open_publisher(self):
        # An XPUB is a PUB that is told of subscriptions, which is how this
        # client knows that a server listens before it sends it anything.
        kind = zmq.XPUB if self.args.publisher == "xpub" else zmq.PUB
        s = self.context.socket(kind)
        s.linger = 0
        s.sndhwm = 0
        if kind == zmq.XPUB:
            s.setsockopt(zmq.XPUB_VERBOSER, 1)
            self.poller.register(s, zmq.POLLIN)
        for host, _, port in self.servers:
            s.connect("tcp://%s:%d" % (host, int(port) + 2))
        self.publisher = s
        self.settled = time.monotonic() + self.args.settle / 1000

    def next_server(self):
        for s in (self.snapshot, self.subscriber):
            if s is not None:
                self.poller.register(s, 0)
                s.close()
        self.current = (self.current + 1) % len(self.servers)
        server = self.servers[self.current]
        self.snapshot = self._socket(zmq.DEALER, 0, server)
        self.subscriber = self._socket(zmq.SUB, 1, server)
        # HUGZ comes last. The two travel in order, so where a HUGZ arrives the
        # subtree's subscription is in force as well.
        self.subscriber.setsockopt(zmq.SUBSCRIBE, self.subtree)
        self.subscriber.setsockopt(zmq.SUBSCRIBE, b"HUGZ")
        self.poller.register(self.snapshot, zmq.POLLIN)
        self.poller.register(self.subscriber, zmq.POLLIN)
        self.coming = {}
        self.heard()
        self.enter(INITIAL)

    def enter(self, state):
        self.state = state
        host, _, port = self.servers[self.current]
        event("state", state=state, server="%s:%s" % (host, port), sequence=self.sequence)

    def heard(self):
        self.expiry = time.monotonic() + self.silence

    # What comes in.

    def take_subscriber(self):
        frames = self.subscriber.recv_multipart()
        self.heard()
        if self.state == INITIAL:
            # Whatever this update says is in the snapshot still to be cut. It
            # counts as proof only if it came by the last of the subscriptions.
            if frames[0].startswith(b"HUGZ"):
                self.snapshot.send_multipart([b"ICANHAZ?", self.subtree])
                self.stats["syncs"] += 1
                # From here on updates wait in the socket until KTHXBAI.
                self.poller.register(self.subscriber, 0)
                self.enter(SYNCING)
            return
        if len(frames) != 5 or len(frames[1]) != SEQUENCE.size:
            self.stats["malformed"] += 1
            return
        key, bytes, identifier, properties, value = frames
        if key == b"HUGZ":
            self.stats["hugz"] += 1
            return
        (sequence,) = SEQUENCE.unpack(bytes)
        if sequence <= self.sequence:
            self.stats["discarded"] += 1
            return
        self.sequence = sequence
        self.stats["applied"] += 1
        if value:
            self.pairs[key] = value
        else:
            self.pairs.pop(key, None)
        if self.args.events:
            event(
                "update",
                key=encode(key),
                sequence=sequence,
                uuid=encode(identifier),
                properties=encode(properties),
                value=encode(value),
            )

    def take_snapshot(self):
        frames = self.snapshot.recv_multipart()
        self.heard()
        if self.state != SYNCING:
            return
        if len(frames) != 5 or len(frames[1]) != SEQUENCE.size:
            self.stats["malformed"] += 1
            return
        if frames[0] != b"KTHXBAI":
            self.coming[frames[0]] = frames[4]
            if self.args.events:
                event(
                    "kvsync",
                    key=encode(frames[0]),
                    uuid=encode(frames[2]),
                    properties=encode(frames[3]),
                )
            return
        (self.sequence,) = SEQUENCE.unpack(frames[1])
        self.pairs, self.coming = self.coming, {}
        self.poller.register(self.subscriber, zmq.POLLIN)
        self.enter(ACTIVE)

    def take_subscription(self):
        for frame in self.publisher.recv_multipart():
            self.subscribed += 1 if frame[:1] == b"\1" else -1

    # What a test asks for.

    def handlers(self):
        return {
            "set": self.set,
            "fill": self.fill,
            "publish": self.publish,
            "dump": self.dump,
            "digest": self.digest,
            "count": lambda: {"count": len(self.pairs)},
            "stats": lambda: dict(self.stats, sequence=self.sequence, state=self.state),
            "wait": self.wait,
            "wait_active": self.wait_active,
            "wait_count": self.wait_count,
            "wait_sequence": self.wait_sequence,
        }

    def _sent(self, messages):
        """Answers a command once a server's collector could take the messages."""
        self.outgoing.extend(messages)
        self.taken += len(messages)
        mine = self.taken
        self.flush()
        answer = {"sent": len(messages)}
        if len(messages) == 1 and len(messages[0]) == 5:
            answer["uuid"] = encode(messages[0][2])
        return Later(lambda: answer if self.sent >= mine else None, 120)

    def writable(self):
        if self.args.publisher == "xpub":
            return self.subscribed > 0
        return time.monotonic() >= self.settled

    def flush(self):
        while self.outgoing and self.writable():
            self.publisher.send_multipart(self.outgoing.popleft())
            self.sent += 1

    def _kvset(self, key, value, properties):
        return [key, SEQUENCE.pack(0), uuid.uuid4().bytes, properties, value]

    def set(self, key, value="", ttl=0, properties=""):
        """Sends a KVSET; without a value it deletes. ttl is in seconds."""
        bytes = decode(properties)
        if self.args.style == "c":
            if ttl != int(ttl):
                raise Failure("whole seconds only in this style")
            bytes += b"ttl=%d\n" % ttl
        elif ttl:
            bytes += b"ttl=%s\n" % str(ttl).encode("ascii")
        return self._sent([self._kvset(decode(key), decode(value), bytes)])

    def fill(self, prefix, count, size, seed=0):
        """Sends KVSETs for prefix+0 to prefix+(count-1) with generated values."""
        return self._sent(
            [
                self._kvset(decode(prefix) + b"%d" % i, pattern(seed, i, 0, size), b"")
                for i in range(count)
            ]
        )

    def publish(self, frames):
        """Sends frames to the servers' collectors as they are, good or bad."""
        bytes = [decode(f) for f in frames]
        return self._sent([bytes])

    def dump(self):
        pairs = [{"key": encode(k), "value": encode(v)} for k, v in self.pairs.items()]
        return {"sequence": self.sequence, "state": self.state, "pairs": pairs}

    def digest(self):
        return {
            "sequence": self.sequence,
            "count": len(self.pairs),
            "sha256": digest(self.pairs),
        }

    def _wait(self, condition, seconds):
        def check():
            return {"sequence": self.sequence} if condition() else None

        return Later(check, seconds)

    def wait(self, key, value="", seconds=120):
        """Answers once key has the value; without a value, once key is gone."""
        key, value = decode(key), decode(value)
        return self._wait(lambda: self.pairs.get(key, b"") == value, seconds)

    def wait_active(self, seconds=120):
        return self._wait(lambda: self.state == ACTIVE, seconds)

    def wait_count(self, count, seconds=120):
        return self._wait(
            lambda: self.state == ACTIVE and len(self.pairs) == count, seconds
        )

    def wait_sequence(self, sequence, seconds=120):
        return self._wait(
            lambda: self.state == ACTIVE and self.sequence >= sequence, seconds
        )

    def run(self):
        commands = Commands(self.handlers())
        event("ready", libzmq=zmq.zmq_version())
        self.poller.register(commands.fd, zmq.POLLIN)
        while True:
            ready = dict(self.poller.poll(50))
            if self.publisher in ready:
                self.take_subscription()
            self.flush()
            # Bounded turns, so that neither a flood of updates nor a big
            # snapshot keeps the commands waiting for long.
            snapshot, subscriber = self.snapshot, self.subscriber
            for _ in range(100):
                if self.state != SYNCING or not readable(snapshot):
                    break
                self.take_snapshot()
            for _ in range(100):
                if self.state == SYNCING or not readable(subscriber):
                    break
                self.take_subscriber()
            if commands.fd in ready:
                commands.run()
            if time.monotonic() >= self.expiry:
                self.next_server()
            commands.settle()


def readable(s):
    return s.getsockopt(zmq.EVENTS) & zmq.POLLIN


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--server", action="append", required=True, help="host:P")
    p.add_argument("--subtree", default="")
    p.add_argument("--style", choices=("c", "py"), default="c")
    p.add_argument("--timeout", type=int, default=5000, help="milliseconds of silence")
    p.add_argument("--publisher", choices=("xpub", "pub"), default="xpub")
    p.add_argument(
        "--settle", type=int, default=1000, help="milliseconds before a PUB's first send"
    )
    p.add_argument("--events", action="store_true", help="tell of each update")
    Client(p.parse_args()).run()


if __name__ == "__main__":
    main()
