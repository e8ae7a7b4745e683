"""A client on libzmq that asks for all that it can, and says what it gets.

It subscribes before it connects, so that the subscriptions are with the server
as early as they can be.
"""

import argparse
import struct
import sys
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

from lines import event


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--server", required=True)
    p.add_argument("--user")
    p.add_argument("--password", default="")
    p.add_argument("--public")
    p.add_argument("--secret")
    p.add_argument("--server-key")
    args = p.parse_args()
    host, _, port = args.server.rpartition(":")
    context = zmq.Context()
    kept = []  # a socket that is collected may share the name of its monitor with the next one

    def open(kind, offset, topics=()):
        s = context.socket(kind)
        s.linger = 2000
        s.rcvtimeo = 20000
        if args.user is not None:
            s.plain_username = args.user.encode()
            s.plain_password = args.password.encode()
        if args.public:
            s.curve_publickey = args.public.encode()
            s.curve_secretkey = args.secret.encode()
            s.curve_serverkey = args.server_key.encode()
        for topic in topics:
            s.setsockopt(zmq.SUBSCRIBE, topic)
        monitor = s.get_monitor_socket()
        kept.append((s, monitor))
        s.connect("tcp://%s:%d" % (host, int(port) + offset))
        return s, monitor

    def ends(monitor):
        """Waits until a connection fails or ends."""
        while True:
            e = recv_monitor_message(monitor)["event"]
            if e in (zmq.EVENT_DISCONNECTED, zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL):
                return e

    event("ready")
    if args.user == "stranger":
        s, monitor = open(zmq.DEALER, 0)
        event("done", ended=int(ends(monitor)))
        return
    sub, _ = open(zmq.SUB, 1, (b"", b"/", b"/a", b"/a/", b"/ab/", b"/b/", b"$lease/", b"HUGZ"))
    snapshot, _ = open(zmq.DEALER, 0)
    got = []
    snapshot.send_multipart([b"ICANHAZ?", b"/a/"])
    while True:
        frames = snapshot.recv_multipart()
        if frames[0] == b"KTHXBAI":
            break
        got.append(frames[0].decode())
    ended = []
    for subtree in (b"", b"/b/", b"/ab/"):
        other, monitor = open(zmq.DEALER, 0)
        other.send_multipart([b"ICANHAZ?", subtree])
        ended.append(int(ends(monitor)))
        other.rcvtimeo = 0
        try:
            got.append("answer to %r: %r" % (subtree, other.recv_multipart()))
        except zmq.Again:
            pass
    for question in ([b"STATUS?"], [b"FAILOVER?"], [b"RELOAD?"], [b"HISTORY?", b"12345678", b"/b/1", b"\0" * 8]):
        snapshot.send_multipart(question)
    while sub.recv_multipart()[0] != b"HUGZ":  # the subscriptions are in force
        pass
    pub, monitor = open(zmq.XPUB, 2)
    pub.recv()  # the server's subscription
    for key in (b"/b/py", b"/ab/py", b"/a", b"x", b"/a/py"):
        pub.send_multipart([key, struct.pack(">q", 0), b"", b"", b"v"])
    heard = []
    end = time.time() + 20
    while time.time() < end:
        frames = sub.recv_multipart()
        if frames[0] != b"HUGZ":
            heard.append(frames[0].decode())
        if frames[0] == b"/a/end":
            break
        if frames[0] == b"/a/py":
            event("written")
    event("done", snapshot=got, ended=ended, heard=heard)


main()
