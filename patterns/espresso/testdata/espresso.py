"""The publisher or the subscriber of the guide's Espresso on the real libzmq.

The publisher binds and sends one frame every 100 ms: a letter from A to J, a dash
and five digits. The subscriber connects, subscribes to A and B, and leaves when it
has received five messages: it tells them in an event "received", closes its
socket, and ends.
"""

import argparse
import random
import sys

import zmq

from lines import event


def publish(endpoint, interval):
    s = zmq.Context.instance().socket(zmq.PUB)
    s.linger = 0
    s.bind(endpoint)
    event("ready", endpoint=s.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode("ascii"))
    poller = zmq.Poller()
    poller.register(sys.stdin, zmq.POLLIN)
    while not poller.poll(interval):  # the end of stdin ends the program
        s.send_string("%s-%05d" % (random.choice("ABCDEFGHIJ"), random.randrange(100000)))


def subscribe(endpoint):
    s = zmq.Context.instance().socket(zmq.SUB)
    s.linger = 0
    s.connect(endpoint)
    s.setsockopt(zmq.SUBSCRIBE, b"A")
    s.setsockopt(zmq.SUBSCRIBE, b"B")
    event("ready", endpoint=endpoint)
    received = [s.recv_string() for _ in range(5)]
    event("received", messages=received)
    s.close()
    zmq.Context.instance().term()


p = argparse.ArgumentParser()
p.add_argument("role", choices=["publish", "subscribe"])
p.add_argument("endpoint")
p.add_argument("--interval", type=int, default=100, help="milliseconds")
args = p.parse_args()
if args.role == "publish":
    publish(args.endpoint, args.interval)
else:
    subscribe(args.endpoint)
