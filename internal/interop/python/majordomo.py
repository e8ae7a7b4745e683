"""The three parts of the Majordomo Protocol, MDP/0.1, on the real libzmq, as the guide
has them: a broker with one thread, a worker that does nothing else while it works, a
synchronous client on a REQ socket, and an asynchronous one on a DEALER.

Commands to a client: "request" (service, body) waits for the reply, "send" and "recv"
do not belong together as those of the asynchronous client. A worker and a broker
report their work with "state". A message that the guide's programs would not
understand is an event "disturbed".
"""

import argparse
import time

import zmq

from lines import Commands, Failure, decode, encode, event

CLIENT, WORKER = b"MDPC01", b"MDPW01"
READY, REQUEST, REPLY, HEARTBEAT, DISCONNECT = (bytes([i]) for i in range(1, 6))


class Disturbed(Exception):
    pass


def need(condition, frames):
    """The guide's programs assert."""
    if not condition:
        raise Disturbed([f.hex() for f in frames])


class Broker:
    def __init__(self, args):
        self.interval = args.heartbeat
        self.expiry = args.heartbeat * args.liveness
        self.socket = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.bind(args.endpoint)
        self.services = {}  # name: (requests, idle workers)
        self.workers = {}  # identity: [service, expiry, busy]
        self.idle = []
        self.due = time.monotonic() + self.interval
        self.repeated = 0
        self.commands = Commands({"state": self.state})
        event("ready", endpoint=self.socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode(), libzmq=zmq.zmq_version())

    def state(self):
        return {"services": {name.decode(): [len(r), len(w)] for name, (r, w) in self.services.items()}, "workers": len(self.workers)}

    def run(self):
        poller = zmq.Poller()
        poller.register(self.commands.fd, zmq.POLLIN)
        poller.register(self.socket, zmq.POLLIN)
        while True:
            ready = dict(poller.poll(max(0, self.due - time.monotonic()) * 1000))
            if self.socket in ready:
                frames = self.socket.recv_multipart()
                try:
                    self.take(frames)
                except Disturbed as e:
                    event("disturbed", frames=e.args[0])
            if time.monotonic() >= self.due:
                self.purge()
                for worker in self.idle:
                    self.send(worker, HEARTBEAT)
                self.due = time.monotonic() + self.interval
            if self.commands.fd in ready:
                self.commands.run()

    def take(self, frames):
        need(len(frames) >= 3 and frames[1] == b"", frames)
        sender, _, header, *rest = frames
        if header == CLIENT:
            need(len(rest) >= 2, frames)
            service, *body = rest
            if service.startswith(b"mmi."):
                code = b"501"
                if service == b"mmi.service":
                    known = any(w[0] == body[-1] for w in self.workers.values())
                    code = b"200" if known else b"404"
                body[-1] = code
                self.socket.send_multipart([sender, b"", CLIENT, service] + body)
            else:
                self.service(service)[0].append((sender, body))
                self.dispatch(service)
            return
        need(header == WORKER and rest, frames)
        command, *rest = rest
        known = sender in self.workers
        if command == READY:
            need(len(rest) == 1, frames)
            if known or rest[0].startswith(b"mmi."):
                self.delete(sender, True)
            else:
                self.workers[sender] = [rest[0], 0, False]
                self.waiting(sender)
        elif command == REPLY:
            if not known:
                self.delete(sender, True)
                return
            need(len(rest) >= 3 and rest[1] == b"", frames)
            client, _, *body = rest
            self.socket.send_multipart([client, b"", CLIENT, self.workers[sender][0]] + body)
            self.waiting(sender)
        elif command == HEARTBEAT:
            need(not rest, frames)
            if known:
                self.workers[sender][1] = time.monotonic() + self.expiry
            else:
                self.delete(sender, True)
        elif command == DISCONNECT:
            need(not rest, frames)
            self.delete(sender, False)
        else:
            need(False, frames)

    def service(self, name):
        return self.services.setdefault(name, ([], []))

    def waiting(self, worker):
        service = self.workers[worker][0]
        self.workers[worker][1] = time.monotonic() + self.expiry
        self.idle.append(worker)
        self.service(service)[1].append(worker)
        self.dispatch(service)

    def dispatch(self, name):
        self.purge()
        requests, workers = self.service(name)
        while requests and workers:
            client, body = requests.pop(0)
            worker = workers.pop(0)
            self.idle.remove(worker)
            self.send(worker, REQUEST, client, b"", *body)

    def purge(self):
        while self.idle and self.workers[self.idle[0]][1] < time.monotonic():
            self.delete(self.idle[0], False)

    def delete(self, worker, tell):
        if tell:
            self.send(worker, DISCONNECT)
        known = self.workers.pop(worker, None)
        if worker in self.idle:
            self.idle.remove(worker)
            self.service(known[0])[1].remove(worker)

    def send(self, worker, command, *frames):
        self.socket.send_multipart([worker, b"", WORKER, command, *frames])


class Worker:
    def __init__(self, args):
        self.args = args
        self.socket = None
        self.poller = zmq.Poller()
        self.handled = self.sessions = self.disconnects = self.beats = 0
        self.commands = Commands({"state": self.state})
        self.poller.register(self.commands.fd, zmq.POLLIN)
        self.connect()
        event("ready", endpoint=args.endpoint, libzmq=zmq.zmq_version())

    def state(self):
        return {"handled": self.handled, "sessions": self.sessions, "disconnects": self.disconnects, "beats": self.beats}

    def connect(self):
        if self.socket is not None:
            self.poller.unregister(self.socket)
            self.socket.close()
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(self.args.endpoint)
        self.poller.register(self.socket, zmq.POLLIN)
        self.sessions += 1
        self.send(READY, self.args.service.encode())
        self.left = self.args.liveness
        self.due = time.monotonic() + self.args.heartbeat

    def send(self, command, *frames):
        self.socket.send_multipart([b"", WORKER, command, *frames])

    def run(self):
        while True:
            ready = dict(self.poller.poll(self.args.heartbeat * 1000))
            if self.commands.fd in ready:
                self.commands.run()
            if self.socket in ready:
                self.left = self.args.liveness
                frames = self.socket.recv_multipart()
                try:
                    self.take(frames)
                except Disturbed as e:
                    event("disturbed", frames=e.args[0])
            elif self.commands.fd not in ready:
                self.left -= 1
                if self.left == 0:
                    time.sleep(self.args.heartbeat)
                    self.connect()
            if time.monotonic() > self.due:
                self.send(HEARTBEAT)
                self.due = time.monotonic() + self.args.heartbeat

    def take(self, frames):
        need(len(frames) >= 3 and frames[:2] == [b"", WORKER], frames)
        command, rest = frames[2], frames[3:]
        if command == REQUEST:
            need(len(rest) >= 3 and rest[1] == b"", frames)
            time.sleep(self.args.work)
            self.handled += 1
            self.send(REPLY, rest[0], b"", *rest[2:])
        elif command == DISCONNECT:
            self.disconnects += 1
            self.connect()
        elif command == HEARTBEAT:
            self.beats += 1
        else:
            need(False, frames)


class Client:
    def __init__(self, args):
        self.args = args
        self.commands = Commands({"request": self.request, "send": self.send, "recv": self.recv})
        self.socket = None
        self.connect()
        self.dealer = zmq.Context.instance().socket(zmq.DEALER)
        self.dealer.linger = 0
        self.dealer.connect(args.endpoint)
        event("ready", endpoint=args.endpoint, libzmq=zmq.zmq_version())

    def connect(self):
        if self.socket is not None:
            self.socket.close()
        self.socket = zmq.Context.instance().socket(zmq.REQ)
        self.socket.linger = 0
        self.socket.connect(self.args.endpoint)

    def request(self, service, body):
        message = [CLIENT, service.encode()] + [decode(f) for f in body]
        for _ in range(self.args.retries):
            self.socket.send_multipart(message)
            if self.socket.poll(self.args.timeout * 1000):
                frames = self.socket.recv_multipart()
                if len(frames) < 3 or frames[:2] != message[:2]:
                    raise Failure("not a reply: %r" % frames)
                return {"reply": [encode(f) for f in frames[2:]]}
            self.connect()
        raise Failure("no reply")

    def send(self, service, body):
        self.dealer.send_multipart([b"", CLIENT, service.encode()] + [decode(f) for f in body])

    def recv(self):
        if not self.dealer.poll(self.args.timeout * 1000):
            raise Failure("no reply")
        frames = self.dealer.recv_multipart()
        if len(frames) < 4 or frames[:2] != [b"", CLIENT]:
            raise Failure("not a reply: %r" % frames)
        return {"service": frames[2].decode(), "reply": [encode(f) for f in frames[3:]]}

    def run(self):
        poller = zmq.Poller()
        poller.register(self.commands.fd, zmq.POLLIN)
        while True:
            poller.poll()
            self.commands.run()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("role", choices=["broker", "worker", "client"])
    p.add_argument("endpoint")
    p.add_argument("--service", default="echo")
    p.add_argument("--heartbeat", type=float, default=2.5, help="seconds")
    p.add_argument("--liveness", type=int, default=3)
    p.add_argument("--work", type=float, default=0, help="seconds for each request")
    p.add_argument("--timeout", type=float, default=60, help="seconds")
    p.add_argument("--retries", type=int, default=3)
    args = p.parse_args()
    {"broker": Broker, "worker": Worker, "client": Client}[args.role](args).run()


if __name__ == "__main__":
    main()
