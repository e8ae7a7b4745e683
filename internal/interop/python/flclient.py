"""A Freelance client on the real libzmq, as the guide has it (model three).

One ROUTER without an identity addresses each server by its endpoint. It pings
servers that it has not heard for an interval, drops those that it has not heard
for their time to live, and sends the request to the first that is left. One
request at a time; its control frame is a number in decimal digits.

As in the guide, the request is sent again at every wake-up, so a server can get
it more than once.
"""

import argparse
import time

import zmq

from lines import Commands, decode, encode, event


class Server:
    def __init__(self, endpoint, args):
        self.endpoint = endpoint.encode("ascii")
        self.args = args
        self.alive = False
        self.pongs = 0
        self.heard()

    def heard(self):
        now = time.monotonic()
        self.ping_at = now + self.args.interval
        self.expires = now + self.args.ttl

    def ping(self, socket):
        if time.monotonic() >= self.ping_at:
            socket.send_multipart([self.endpoint, b"PING"])
            self.ping_at = time.monotonic() + self.args.interval


class Client:
    def __init__(self, args):
        self.args = args
        self.router = zmq.Context().socket(zmq.ROUTER)
        self.router.linger = 0
        self.servers = {}
        self.actives = []
        self.sequence = 0
        for endpoint in args.server:
            self.router.connect(endpoint)
            server = Server(endpoint, args)
            self.servers[server.endpoint] = server
            self.actives.append(server)
        time.sleep(0.1)  # for the handshakes, which bring the identities

    def receive(self):
        """The sequence and body of a reply, or None for a PONG."""
        endpoint, control, *body = self.router.recv_multipart()
        server = self.servers[endpoint]
        server.heard()
        if not server.alive:
            server.alive = True
            if server not in self.actives:
                self.actives.append(server)
        if control == b"PONG":
            server.pongs += 1
            return None
        return control, body

    def ping(self):
        for server in self.servers.values():
            server.ping(self.router)

    def request(self, body, timeout):
        self.sequence += 1
        control = b"%d" % self.sequence
        frames = [control] + ([b""] if self.args.delimiter else []) + [decode(f) for f in body]
        expires = time.monotonic() + timeout
        while time.monotonic() < expires:
            while self.actives and time.monotonic() >= self.actives[0].expires:
                self.actives.pop(0).alive = False
            if self.actives:
                self.router.send_multipart([self.actives[0].endpoint] + frames)
            if self.router.poll(50):
                reply = self.receive()
                if reply and reply[0] == control:
                    return {"reply": [encode(f) for f in reply[1]]}
            self.ping()
        return {"failed": True}

    def look(self):
        return {s.endpoint.decode("ascii"): s.pongs for s in self.servers.values()}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--server", action="append", required=True)
    p.add_argument("--interval", type=float, required=True, help="seconds")
    p.add_argument("--ttl", type=float, required=True, help="seconds")
    p.add_argument("--delimiter", action="store_true", help="an empty frame before the body")
    args = p.parse_args()
    client = Client(args)
    commands = Commands({"request": client.request, "look": client.look})
    event("ready", libzmq=zmq.zmq_version())
    poller = zmq.Poller()
    poller.register(commands.fd, zmq.POLLIN)
    poller.register(client.router, zmq.POLLIN)
    while True:
        ready = dict(poller.poll(args.interval * 500))
        if client.router in ready:
            client.receive()
        client.ping()
        if commands.fd in ready:
            commands.run()


if __name__ == "__main__":
    main()
