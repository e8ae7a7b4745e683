"""The two ends of the guide's Suicidal Snail, on the real libzmq.

  snail.py pub           a PUB that sends its clock, in milliseconds as decimal text,
                         every millisecond. "pause" makes it stamp with the time at
                         which it was paused.
  snail.py sub ENDPOINT  a SUB that tells the delay of its first message, in
                         milliseconds, as an event "delay", and of one that is a
                         second behind as an event "died".
"""

import sys
import time

import zmq

from lines import Commands, event


def clock():
    return int(time.time() * 1000)


def publish(context):
    publisher = context.socket(zmq.PUB)
    publisher.bind("tcp://127.0.0.1:*")
    stopped = None

    def pause():
        nonlocal stopped
        stopped = clock()

    commands = Commands({"pause": pause})
    event("ready", endpoint=publisher.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode())
    poller = zmq.Poller()
    poller.register(commands.fd, zmq.POLLIN)
    while True:
        if poller.poll(1):
            commands.run()
        publisher.send_string(str(stopped or clock()))


def subscribe(context):
    subscriber = context.socket(zmq.SUB)
    subscriber.connect(sys.argv[2])
    subscriber.setsockopt(zmq.SUBSCRIBE, b"")
    commands = Commands({})
    event("ready")
    poller = zmq.Poller()
    poller.register(commands.fd, zmq.POLLIN)
    poller.register(subscriber, zmq.POLLIN)
    first = True
    while True:
        if subscriber in dict(poller.poll()):
            delay = clock() - int(subscriber.recv_string())
            if first:
                event("delay", delay=delay)
                first = False
            if delay > 1000:
                event("died", delay=delay)
                return


if __name__ == "__main__":
    role = publish if sys.argv[1] == "pub" else subscribe
    role(zmq.Context())
