"""The two ends of the guide's last-value example, on the real libzmq.

  patho.py pub ENDPOINT   a PUB that connects. "all" sends one message for each of
                          the topics 000 to 999, "one" an update of one of them.
  patho.py sub ENDPOINT   a SUB of one topic that it chooses at random, or of the
                          prefix that is given. Each message is an event "data".
"""

import random
import sys

import zmq

from lines import Commands, event


def main():
    role, endpoint = sys.argv[1:3]
    context = zmq.Context()
    if role == "pub":
        publisher = context.socket(zmq.PUB)
        publisher.connect(endpoint)

        def send_all(text):
            for n in range(1000):
                publisher.send_multipart([b"%03d" % n, text.encode()])

        def send_one(topic, text):
            publisher.send_multipart([topic.encode(), text.encode()])

        commands = Commands({"all": send_all, "one": send_one})
        event("ready")
        while True:
            commands.run()

    subscriber = context.socket(zmq.SUB)
    subscriber.connect(endpoint)
    topic = sys.argv[3] if len(sys.argv) > 3 else "%03d" % random.randint(0, 999)
    subscriber.setsockopt(zmq.SUBSCRIBE, topic.encode())
    commands = Commands({})
    event("ready", topic=topic)
    poller = zmq.Poller()
    poller.register(commands.fd, zmq.POLLIN)
    poller.register(subscriber, zmq.POLLIN)
    while True:
        ready = dict(poller.poll())
        if subscriber in ready:
            topic, data = subscriber.recv_multipart()
            event("data", topic=topic.decode(), data=data.decode())
        if commands.fd in ready:
            commands.run()


if __name__ == "__main__":
    main()
