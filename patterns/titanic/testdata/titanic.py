"""A Titanic client on the real libzmq that behaves as the guide's: a REQ socket that waits
for each answer, connects anew and asks again if none comes, and takes nothing for a
status but the bare digits.

It submits a request to a service, asks for the reply again and again while that is pending, and
closes the request, as commands: "submit" (service, body), "reply" (uuid), "close" (uuid), and
"whole" (service, body) for all of it.
"""

import argparse
import time

import zmq

from lines import Commands, Failure, decode, encode, event

CLIENT = b"MDPC01"


class Client:
    def __init__(self, args):
        self.args = args
        self.socket = None
        self.connect()
        self.commands = Commands(
            {"submit": self.submit, "reply": self.reply, "close": self.close, "whole": self.whole}
        )
        event("ready", endpoint=args.broker)

    def connect(self):
        if self.socket is not None:
            self.socket.close()
        self.socket = zmq.Context.instance().socket(zmq.REQ)
        self.socket.linger = 0
        self.socket.connect(self.args.broker)

    def call(self, service, *body):
        """One request; returns the status and the frames after it."""
        for _ in range(self.args.tries):
            self.socket.send_multipart([CLIENT, service, *body])
            if not self.socket.poll(self.args.timeout * 1000):
                self.connect()
                continue
            header, replier, *answer = self.socket.recv_multipart()
            if header != CLIENT or replier != service or not answer:
                raise Failure("not an answer of %r: %r %r %r" % (service, header, replier, answer))
            status, *content = answer
            if status not in (b"200", b"300", b"400", b"500"):
                raise Failure("status %r" % status)
            return status, content
        raise Failure("no answer of %r" % service)

    def submit(self, service, body):
        status, content = self.call(b"titanic.request", service.encode(), *map(decode, body))
        return {"status": status.decode(), "uuid": content[0].decode() if content else ""}

    def reply(self, uuid):
        status, content = self.call(b"titanic.reply", uuid.encode())
        return {"status": status.decode(), "reply": [encode(f) for f in content]}

    def close(self, uuid):
        status, content = self.call(b"titanic.close", uuid.encode())
        if content:
            raise Failure("an answer of more than a status: %r" % content)
        return {"status": status.decode()}

    def whole(self, service, body):
        stored = self.submit(service, body)
        if stored["status"] != "200":
            raise Failure("submit: %r" % stored)
        while True:
            answer = self.reply(stored["uuid"])
            if answer["status"] != "300":
                break
            time.sleep(0.005)
        closed = self.close(stored["uuid"])
        return dict(answer, closed=closed["status"], after=self.reply(stored["uuid"])["status"])

    def run(self):
        poller = zmq.Poller()
        poller.register(self.commands.fd, zmq.POLLIN)
        while True:
            poller.poll()
            self.commands.run()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--broker", required=True)
    p.add_argument("--timeout", type=float, default=60, help="seconds")
    p.add_argument("--tries", type=int, default=3)
    Client(p.parse_args()).run()


if __name__ == "__main__":
    main()
