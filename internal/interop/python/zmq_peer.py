"""One libzmq socket, driven by a test through JSON lines.

Commands run one after the other, each to its end, in the order they came.
"""

import argparse
import hashlib
import struct
import time

import zmq
import zmq.utils.monitor

from lines import Commands, Failure, decode, encode, event, pattern

# A frame up to this size is reported with its bytes as well as with its hash.
SHOWN = 256

# How long a command may wait for the other side. It only ends a hung test.
PATIENCE = 120


class Peer:
    def __init__(self, args):
        self.context = zmq.Context()
        self.socket = s = self.context.socket(getattr(zmq, args.type))
        s.linger = args.linger
        if args.hwm is not None:
            s.sndhwm = s.rcvhwm = args.hwm
        if args.identity is not None:
            s.setsockopt(zmq.IDENTITY, decode(args.identity))
        for option in args.option:
            name, _, number = option.partition("=")
            s.setsockopt(getattr(zmq, name), int(number))
        for option in args.text:
            name, _, text = option.partition("=")
            s.setsockopt_string(getattr(zmq, name), text)
        for topic in args.subscribe:
            s.setsockopt(zmq.SUBSCRIBE, decode(topic))
        if args.zap:
            self.zap = self.context.socket(zmq.REP)
            self.zap.bind("inproc://zeromq.zap.01")
        # The monitor comes before the endpoints, so that it misses nothing. It
        # tells of connections only: unread events would in the end
        # block libzmq's own thread, and failed attempts can be many.
        self.monitor = s.get_monitor_socket(
            zmq.Event.CONNECTED
            | zmq.Event.ACCEPTED
            | zmq.Event.HANDSHAKE_SUCCEEDED
            | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
            | zmq.Event.DISCONNECTED
        )
        for endpoint in args.bind:
            s.bind(endpoint)
        for endpoint in args.connect:
            s.connect(endpoint)

    def endpoint(self):
        return self.socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode("ascii")

    def handlers(self):
        return {
            "bind": self.bind,
            "unbind": self.unbind,
            "connect": self.connect,
            "disconnect": self.disconnect,
            "subscribe": self.subscribe,
            "unsubscribe": self.unsubscribe,
            "send": self.send,
            "recv": self.recv,
            "echo": self.echo,
            "flood": self.flood,
            "count": self.count,
            "wait_event": self.wait_event,
            "admit": self.admit,
        }

    # Endpoints and subscriptions.

    def bind(self, endpoint):
        self.socket.bind(endpoint)
        return {"endpoint": self.endpoint()}

    def unbind(self, endpoint):
        self.socket.unbind(endpoint)

    def connect(self, endpoint):
        self.socket.connect(endpoint)
        return {"endpoint": self.endpoint()}

    def disconnect(self, endpoint):
        self.socket.disconnect(endpoint)

    def subscribe(self, topic):
        self.socket.setsockopt(zmq.SUBSCRIBE, decode(topic))

    def unsubscribe(self, topic):
        self.socket.setsockopt(zmq.UNSUBSCRIBE, decode(topic))

    # Messages.

    def refresh(self):
        """Has libzmq do the work that waits for this thread.

        It takes connections and subscriptions, and answers the former with
        its own subscriptions, only when the socket is used, and while it sends
        only now and then. Asking for the events makes it look at once.
        """
        self.socket.getsockopt(zmq.EVENTS)

    def _send(self, frames):
        if not self.socket.poll(PATIENCE * 1000, zmq.POLLOUT):
            raise Failure("nowhere to send to")
        self.socket.send_multipart(frames, copy=True)

    def _recv(self, seconds=PATIENCE):
        if not self.socket.poll(int(seconds * 1000), zmq.POLLIN):
            return None
        return self.socket.recv_multipart()

    def _expect(self, received, wanted):
        frames = self._recv()
        if frames is None:
            raise Failure("only %d of %d messages came" % (received, wanted))
        return frames

    def send(self, messages=(), head=(), seed=0, sizes=(), count=0):
        """Sends messages given as lists of frames, then count generated ones.

        Each of the latter is the frames of head (a topic, an identity) and
        behind them generated frames of the given sizes.
        """
        self.refresh()
        for frames in messages:
            self._send([decode(f) for f in frames])
        head = [decode(f) for f in head]
        for i in range(count):
            self._send(head + [pattern(seed, i, j, n) for j, n in enumerate(sizes)])
        return {"sent": len(messages) + count}

    def recv(self, n=1):
        """Receives n messages and reports size, hash, and bytes of each frame."""
        messages = []
        for i in range(n):
            messages.append([report(f) for f in self._expect(i, n)])
        return {"messages": messages}

    def echo(self, n):
        """Sends the next n messages back as they came."""
        for i in range(n):
            self._send(self._expect(i, n))
        return {"echoed": n}

    def flood(self, n, size, head=(), first=0):
        """Sends n messages: head, then a frame with an 8-byte number and filling."""
        self.refresh()
        head = [decode(f) for f in head]
        filling = b"\xa5" * max(0, size - 8)
        start = time.monotonic()
        for i in range(first, first + n):
            self.socket.send_multipart(head + [struct.pack(">Q", i) + filling])
        return {"sent": n, "seconds": time.monotonic() - start}

    def count(self, n, idle=PATIENCE):
        """Receives messages of flood, until n came or none for idle seconds."""
        count, ordered, first, last = 0, True, None, None
        while count < n:
            frames = self._recv(idle)
            if frames is None:
                break
            (number,) = struct.unpack(">Q", frames[-1][:8])
            if last is not None and number <= last:
                ordered = False
            first = number if first is None else first
            last = number
            count += 1
        return {"count": count, "ordered": ordered, "first": first, "last": last}

    def wait_event(self, name, n=1):
        """Waits until the socket's monitor told n events of that name."""
        wanted = getattr(zmq.Event, name)
        deadline = time.monotonic() + PATIENCE
        told = []
        while n > 0:
            if not self.monitor.poll(max(0, int((deadline - time.monotonic()) * 1000))):
                raise Failure("no %s; told: %s" % (name, told))
            e = zmq.utils.monitor.recv_monitor_message(self.monitor)
            told.append(zmq.Event(e["event"]).name)
            n -= e["event"] == wanted
        return {"told": told}

    def admit(self):
        """Lets the next peer in that the ZAP handler is asked about (RFC 27), and reports the request."""
        if not self.zap.poll(PATIENCE * 1000):
            raise Failure("the ZAP handler is not asked")
        request = self.zap.recv_multipart()
        self.zap.send_multipart([b"1.0", request[1], b"200", b"OK", b"", b""])
        return {"messages": [[report(f) for f in request]]}


def report(frame):
    r = {"size": len(frame), "sha256": hashlib.sha256(frame).hexdigest()}
    if len(frame) <= SHOWN:
        r["bytes"] = encode(frame)
    return r


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--type", required=True, help="PUB, SUB, XPUB, ROUTER, ...")
    p.add_argument("--bind", action="append", default=[])
    p.add_argument("--connect", action="append", default=[])
    p.add_argument("--identity", help="base64")
    p.add_argument("--subscribe", action="append", default=[], help="base64")
    p.add_argument("--hwm", type=int)
    p.add_argument("--linger", type=int, default=0, help="milliseconds")
    p.add_argument("--option", action="append", default=[], help="NAME=integer")
    p.add_argument("--text", action="append", default=[], help="NAME=text")
    p.add_argument("--zap", action="store_true", help="with a ZAP handler")
    peer = Peer(p.parse_args())

    commands = Commands(peer.handlers())
    event("ready", endpoint=peer.endpoint(), libzmq=zmq.zmq_version())
    poller = zmq.Poller()
    poller.register(commands.fd, zmq.POLLIN)
    # Readable when work waits for this thread, and not again until more
    # does: unlike the socket, which stays readable while a message is there.
    poller.register(peer.socket.getsockopt(zmq.FD), zmq.POLLIN)
    while True:
        ready = dict(poller.poll())
        peer.refresh()
        if commands.fd in ready:
            commands.run()


if __name__ == "__main__":
    main()
