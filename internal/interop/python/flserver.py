"""A Freelance server on the real libzmq, as the guide has it (model three).

One thread, one ROUTER whose identity is the endpoint. What begins with PING is
answered with PONG, everything else with its control frame and OK.
"""

import argparse
import socket
import time

import zmq

from lines import Commands, encode, event


def free_port():
    """An identity must be known before the socket is bound, so the port must."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--endpoint")
    p.add_argument("--bind", help="where that is not the endpoint")
    args = p.parse_args()
    endpoint = args.endpoint or "tcp://127.0.0.1:%d" % free_port()

    server = zmq.Context().socket(zmq.ROUTER)
    server.linger = 0
    server.setsockopt(zmq.IDENTITY, endpoint.encode("ascii"))
    server.bind(args.bind or endpoint)

    pings, requests = 0, []
    delay = 0.0

    def look():
        return {"pings": pings, "requests": [[encode(f) for f in r] for r in requests]}

    def slow(seconds):
        nonlocal delay
        delay = seconds

    commands = Commands({"look": look, "slow": slow})
    event("ready", endpoint=endpoint, libzmq=zmq.zmq_version())
    poller = zmq.Poller()
    poller.register(commands.fd, zmq.POLLIN)
    poller.register(server, zmq.POLLIN)
    while True:
        ready = dict(poller.poll())
        if server in ready:
            address, control, *body = server.recv_multipart()
            if control == b"PING":
                pings += 1
                server.send_multipart([address, b"PONG"])
            else:
                requests.append([control] + body)
                time.sleep(delay)
                server.send_multipart([address, control, b"OK"])
        if commands.fd in ready:
            commands.run()


if __name__ == "__main__":
    main()
