"""Many libzmq sockets, one a link, each served by a thread of its own.

A test opens a socket, has it play its part in an exchange of messages or
report the result of its handshake, and closes it. Commands of different links run at
the same time; those of one link come one by one.

The sockets share a context, and with it a ZAP handler that lets in one user of
PLAIN and one key of CURVE, which the command line names.
"""

import argparse
import hashlib
import json
import os
import sys
import threading
import traceback

import zmq
import zmq.utils.monitor

from lines import Failure, decode, encode, event, write

# How long anything may take, in milliseconds. It only ends a hung test.
PATIENCE = 120000

# The filling of large messages; the test makes the same.
FILLING = hashlib.shake_128(b"matrix").digest(1 << 20)

# A publisher sends it until its subscriber has reported that messages arrive.
BEACON = b"beacon"


def content(link, side, shape, frame, size):
    """A frame that no other one is equal to, if it is not short."""
    label = b"link %d %s %d/%d " % (link, side, shape, frame)
    return (label + FILLING[: max(0, size - len(label))])[:size]


class Link:
    def __init__(self, context, link, type, options, monitored):
        self.number = link
        self.socket = s = context.socket(getattr(zmq, type))
        self.monitor = s.get_monitor_socket() if monitored else None
        s.linger = 0
        s.sndtimeo = s.rcvtimeo = PATIENCE
        for name, value in options.items():
            s.setsockopt(getattr(zmq, name), value.encode("ascii") if isinstance(value, str) else value)
        if type in ("SUB", "XSUB"):
            self.subscription(True)
        self.seen = threading.Event()

    def subscription(self, wanted):
        """Subscribes to everything, or takes that back."""
        if self.socket.type == zmq.SUB:
            self.socket.setsockopt(zmq.SUBSCRIBE if wanted else zmq.UNSUBSCRIBE, b"")
        else:
            self.socket.send(b"\1" if wanted else b"\0")

    def expect(self, want):
        got = self.socket.recv_multipart()
        if got != want:
            raise Failure("received %s, want %s" % (describe(got), describe(want)))

    def play(self, shapes, begins, sends, receives, lead, notified):
        """Exchanges a message of each shape, and counts the received messages.

        lead is the frames in front of each message: an identity, an empty one.
        notified: subscriptions are received, one before the messages and its
        end behind them.
        """
        s, got = self.socket, 0
        lead = [decode(f) for f in lead or ()]
        if notified:
            self.expect([b"\1"])
        elif s.type == zmq.PUB:
            # It has no way to know of a subscription but its effect.
            while not self.seen.is_set():
                s.send(BEACON)
                self.seen.wait(0.005)
        for i, sizes in enumerate(shapes):
            message = lambda side: lead + [content(self.number, side, i, j, n) for j, n in enumerate(sizes)]
            if sends and begins:
                s.send_multipart(message(b"theirs"))
            if receives:
                self.expect(message(b"ours"))
                got += 1
            if sends and not begins:
                s.send_multipart(message(b"theirs"))
        if s.type in (zmq.SUB, zmq.XSUB):
            self.subscription(False)
        if notified:
            self.expect([b"\0"])
        return {"received": got}

    def verdict(self):
        """Returns the result of the first handshake: events and the last's value."""
        while True:
            if not self.monitor.poll(PATIENCE):
                raise Failure("no verdict")
            e = zmq.utils.monitor.recv_monitor_message(self.monitor)
            name = zmq.Event(e["event"]).name
            if name.startswith("HANDSHAKE") or name == "DISCONNECTED":
                return {"event": name, "value": int(e["value"])}

    def close(self):
        if self.monitor is not None:
            self.socket.disable_monitor()
        self.socket.close()


def describe(frames):
    return "%d frames: %s" % (len(frames), ["%d bytes %r" % (len(f), f[:40]) for f in frames[:5]])


class Links:
    def __init__(self, context):
        self.context = context
        self.links = {}

    def open(self, link, endpoint, bind, **args):
        new = self.links[link] = Link(self.context, link, **args)
        if bind:
            new.socket.bind(endpoint)
        else:
            new.socket.connect(endpoint)
        return {"endpoint": new.socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode("ascii")}

    def play(self, link, **args):
        return self.links[link].play(**args)

    def seen(self, link):
        self.links[link].seen.set()

    def verdict(self, link):
        return self.links[link].verdict()

    def close(self, link):
        self.links.pop(link).close()


def judge(context, args):
    """Answers ZAP requests."""
    s = context.socket(zmq.REP)
    s.bind("inproc://zeromq.zap.01")

    def run():
        while True:
            version, number, _, _, _, mechanism, *credentials = s.recv_multipart()
            if mechanism == b"PLAIN":
                good = credentials == [args.user.encode(), args.password.encode()]
            else:
                good = encode(credentials[0]) == args.allow
            # No user id: libzmq (4.3) hands one to the session as a message of
            # its own, which that of a REQ takes for a malformed reply.
            status = [b"200", b"OK"] if good else [b"400", b"no"]
            s.send_multipart([version, number] + status + [b"", b""])

    threading.Thread(target=run, daemon=True).start()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--user", default="")
    p.add_argument("--password", default="")
    p.add_argument("--allow", default="", help="public key, base64")
    args = p.parse_args()

    context = zmq.Context()
    judge(context, args)
    links = Links(context)
    answers = threading.Lock()

    def serve(line):
        command = json.loads(line)
        number, op = command.pop("id"), command.pop("op")
        try:
            answer = dict(getattr(links, op)(**command) or {}, id=number)
        except Exception as e:
            if not isinstance(e, Failure):
                traceback.print_exc()
            answer = {"id": number, "error": "%s: %s" % (type(e).__name__, e)}
        with answers:
            write(answer)

    event("ready", libzmq=zmq.zmq_version())
    for line in sys.stdin.buffer:
        threading.Thread(target=serve, args=(line,), daemon=True).start()
    os._exit(0)


if __name__ == "__main__":
    main()
