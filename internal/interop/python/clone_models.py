"""Server and client of Clone models 1 to 5 on libzmq, with the guide's frames.

The two work as the guide's programs do, except where that would make tests
unreliable: the server updates its map only when it is told to, and the client
asks for its snapshot only after a first update showed that its subscription is
in force. In models 3 to 5 it sends updates of a key of its own until then.

Model 6 is clone_server.py and clone_client.py.
"""

import argparse
import struct
import time
import uuid

import zmq

from lines import Commands, Later, decode, digest, encode, event

SEQUENCE = struct.Struct(">q")


def pack(model, key, sequence, value, identifier=b"", properties=b""):
    number = SEQUENCE.pack(sequence)
    if model < 5:
        return [key, number, value]
    return [key, number, identifier, properties, value]


class Program:
    def __init__(self, args):
        self.args = args
        self.model = args.model
        self.context = zmq.Context()
        self.poller = zmq.Poller()
        self.pairs = {}
        self.sequence = 0
        self.stats = {"applied": 0, "malformed": 0, "snapshots": 0, "received": 0}

    def socket(self, kind, port):
        s = self.context.socket(kind)
        s.linger = 0
        # Without limits: messages that libzmq drops would look like another's loss.
        s.sndhwm = s.rcvhwm = 0
        at = "tcp://%s:%d" % (self.args.host, port)
        if self.args.role == "server":
            s.bind(at)
        else:
            s.connect(at)
        return s

    def parse(self, frames):
        """Key, sequence, UUID, properties and value, or None."""
        if len(frames) != (3 if self.model < 5 else 5) or len(frames[1]) != 8:
            self.stats["malformed"] += 1
            return None
        (number,) = SEQUENCE.unpack(frames[1])
        if self.model < 5:
            return frames[0], number, b"", b"", frames[2]
        return frames[0], number, frames[2], frames[3], frames[4]

    def store(self, key, value):
        if value or self.model < 5:
            self.pairs[key] = value
        else:
            self.pairs.pop(key, None)

    def digest(self, prefix=""):
        part = {k: v for k, v in self.pairs.items() if k.startswith(decode(prefix))}
        return {"sequence": self.sequence, "count": len(part), "sha256": digest(part)}

    def dump(self):
        pairs = [{"key": encode(k), "value": encode(v)} for k, v in self.pairs.items()]
        return {"sequence": self.sequence, "pairs": pairs}

    def wait_sequence(self, sequence):
        return Later(lambda: {} if self.sequence >= sequence else None, 120)

    def wait(self, key, value=""):
        """Answers once key has the value; without a value, once key is gone."""
        key, value = decode(key), decode(value)
        return Later(lambda: {} if self.pairs.get(key, b"") == value else None, 120)

    def run(self):
        commands = Commands(
            {
                "set": self.set,
                "digest": self.digest,
                "dump": self.dump,
                "stats": lambda: self.stats,
                "wait": self.wait,
                "wait_sequence": self.wait_sequence,
                "wait_joined": self.wait_joined,
                "freeze": self.freeze,
            }
        )
        self.poller.register(commands.fd, zmq.POLLIN)
        event("ready", libzmq=zmq.zmq_version())
        while True:
            ready = dict(self.poller.poll(20))
            self.turn(ready)
            if commands.fd in ready:
                commands.run()
            commands.settle()


class Server(Program):
    def __init__(self, args):
        super().__init__(args)
        self.deadlines = {}
        self.attributes = {}
        self.subscribers = 0
        self.snapshot = self.collector = None
        # An XPUB is a PUB that tells of subscriptions.
        self.publisher = self.socket(zmq.XPUB, 5556 if self.model == 1 else 5557)
        self.poller.register(self.publisher, zmq.POLLIN)
        if self.model > 1:
            self.snapshot = self.socket(zmq.ROUTER, 5556)
            self.poller.register(self.snapshot, zmq.POLLIN)
        if self.model > 2:
            self.collector = self.socket(zmq.PULL, 5558)
            self.poller.register(self.collector, zmq.POLLIN)

    def turn(self, ready):
        if self.publisher in ready:
            self.subscribers += 1 if self.publisher.recv()[:1] == b"\1" else -1
        if self.snapshot in ready:
            self.answer(self.snapshot.recv_multipart())
        if self.collector in ready:
            message = self.parse(self.collector.recv_multipart())
            if message:
                key, _, identifier, properties, value = message
                self.stats["received"] += 1
                self.update(key, value, identifier, properties)
        for key in [k for k, at in self.deadlines.items() if at <= time.time()]:
            # The message that deletes still has the UUID and the time of expiry.
            self.update(key, b"", *self.attributes[key])

    def update(self, key, value, identifier=b"", properties=b""):
        self.sequence += 1
        self.publisher.send_multipart(
            pack(self.model, key, self.sequence, value, identifier, properties)
        )
        self.store(key, value)
        self.deadlines.pop(key, None)
        if value and properties.startswith(b"ttl="):
            seconds = float(properties[4:].split(b"\n")[0])
            if seconds:
                at = self.deadlines[key] = time.time() + seconds
                unit = b"%d" % (at * 1000) if self.args.style == "c" else b"%f" % at
                properties = b"ttl=%s\n" % unit
        self.attributes[key] = identifier, properties

    def answer(self, frames):
        wanted = 2 if self.model < 4 else 3
        if len(frames) != wanted or frames[1] != b"ICANHAZ?":
            self.stats["malformed"] += 1
            return
        self.stats["snapshots"] += 1
        subtree = frames[2] if self.model > 3 else b""
        for key, value in self.pairs.items():
            if key.startswith(subtree):
                self.snapshot.send_multipart(
                    frames[:1]
                    + pack(self.model, key, self.sequence, value, *self.attributes[key])
                )
        body = b"" if self.args.style == "c" else subtree
        self.snapshot.send_multipart(
            frames[:1] + pack(self.model, b"KTHXBAI", self.sequence, body)
        )

    def set(self, key, value="", ttl=0):
        properties = b"ttl=%d\n" % ttl if ttl else b""
        self.update(decode(key), decode(value), uuid.uuid4().bytes, properties)
        return {"sequence": self.sequence}

    def wait_joined(self, topics=1):
        """Answers once clients have subscribed to so many topics."""
        return Later(lambda: {} if self.subscribers >= topics else None, 120)

    def freeze(self):
        """Takes no more updates from clients."""
        self.poller.register(self.collector, 0)
        return {"sequence": self.sequence}


class Client(Program):
    def __init__(self, args):
        super().__init__(args)
        self.subtree = args.subtree.encode("ascii")
        self.joined = self.model == 1
        self.asked = False
        self.next_try = 0
        self.publisher = self.snapshot = None
        self.subscriber = self.socket(zmq.SUB, 5556 if self.model == 1 else 5557)
        self.subscriber.setsockopt(zmq.SUBSCRIBE, self.subtree)
        self.poller.register(self.subscriber, zmq.POLLIN)
        if self.model > 1:
            self.snapshot = self.socket(zmq.DEALER, 5556)
            self.poller.register(self.snapshot, zmq.POLLIN)
        if self.model > 2:
            self.publisher = self.socket(zmq.PUSH, 5558)

    def turn(self, ready):
        if self.publisher and not self.asked and time.monotonic() >= self.next_try:
            self.next_try = time.monotonic() + 0.05
            self.push(self.subtree + b"probe", b"1")
        if self.subscriber in ready:
            self.take_update(self.subscriber.recv_multipart())
        if self.snapshot in ready:
            self.take_snapshot(self.snapshot.recv_multipart())

    def take_update(self, frames):
        message = self.parse(frames)
        if not message:
            return
        if not self.joined:
            self.asked = True
            request = [b"ICANHAZ?"] + ([self.subtree] if self.model > 3 else [])
            self.snapshot.send_multipart(request)
            # From here on updates wait in the socket until KTHXBAI.
            self.poller.register(self.subscriber, 0)
            return
        key, number, _, _, value = message
        if number > self.sequence:
            self.sequence = number
            self.stats["applied"] += 1
            self.store(key, value)

    def take_snapshot(self, frames):
        message = self.parse(frames)
        if not message:
            return
        key, number, _, _, value = message
        if key != b"KTHXBAI":
            self.stats["snapshots"] += 1
            self.store(key, value)
            return
        self.sequence = number
        self.joined = True
        self.poller.register(self.subscriber, zmq.POLLIN)

    def push(self, key, value, properties=b""):
        identifier = b"" if self.args.style == "c" else uuid.uuid4().bytes
        self.publisher.send_multipart(
            pack(self.model, key, 0, value, identifier, properties)
        )

    def set(self, key, value="", ttl=0):
        self.push(decode(key), decode(value), b"ttl=%d\n" % ttl)

    def wait_joined(self):
        """Answers once the snapshot is there."""
        return Later(lambda: {} if self.joined else None, 120)

    def freeze(self):
        return {"sequence": self.sequence}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("role", choices=("server", "client"))
    p.add_argument("--model", type=int, choices=range(1, 6), required=True)
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--subtree", default="")
    p.add_argument("--style", choices=("c", "py"), default="c")
    args = p.parse_args()
    (Server if args.role == "server" else Client)(args).run()


if __name__ == "__main__":
    main()
