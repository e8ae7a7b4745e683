"""One server of a Binary Star pair on the real libzmq, as the guide has it.

It publishes its state at every interval, follows the peer's, and takes votes as
commands. Where the guide's programs end, at a peer that is active or passive
too, it tells "fatal" and exits. It has no arbitration and no epochs.

Each change of state is an event "state". A message from the peer that the
guide's programs would not understand is an event "disturbed".
"""

import argparse
import os
import time

import zmq

from lines import Commands, event

PRIMARY, BACKUP, ACTIVE, PASSIVE = 1, 2, 3, 4


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--backup", action="store_true")
    p.add_argument("--bind", default="tcp://127.0.0.1:*")
    p.add_argument("--peer", required=True)
    p.add_argument("--interval", type=float, required=True, help="seconds")
    p.add_argument("--timeout", type=float, required=True, help="seconds")
    args = p.parse_args()

    context = zmq.Context()
    out = context.socket(zmq.PUB)
    out.linger = 0
    out.bind(args.bind)
    peer = context.socket(zmq.SUB)
    peer.linger = 0
    peer.setsockopt(zmq.SUBSCRIBE, b"")
    peer.connect(args.peer)

    state = BACKUP if args.backup else PRIMARY
    expiry = time.monotonic() + args.timeout
    heard = 0

    def become(new):
        nonlocal state
        state = new
        event("state", state=state)

    def fatal(why):
        event("fatal", why=why)
        os._exit(1)

    def peer_is(other):
        nonlocal expiry
        expiry = time.monotonic() + args.timeout
        if state == PRIMARY:
            if other == BACKUP:
                become(ACTIVE)
            elif other == ACTIVE:
                become(PASSIVE)
        elif state == BACKUP:
            if other == ACTIVE:
                become(PASSIVE)
        elif state == ACTIVE:
            if other == ACTIVE:
                fatal("two actives")
        elif other in (PRIMARY, BACKUP):
            become(ACTIVE)
        elif other == PASSIVE:
            fatal("two passives")

    def vote():
        if state in (PRIMARY, PASSIVE) and time.monotonic() >= expiry:
            become(ACTIVE)
        return {"accept": state == ACTIVE}

    def look():
        return {"state": state, "heard": heard}

    commands = Commands({"vote": vote, "state": look})
    endpoint = out.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode("ascii")
    event("ready", endpoint=endpoint, libzmq=zmq.zmq_version())
    poller = zmq.Poller()
    poller.register(commands.fd, zmq.POLLIN)
    poller.register(peer, zmq.POLLIN)
    due = time.monotonic() + args.interval
    while True:
        ready = dict(poller.poll(max(0, (due - time.monotonic()) * 1000)))
        if time.monotonic() >= due:
            out.send(b"%d" % state)
            due = time.monotonic() + args.interval
        if peer in ready:
            frames = peer.recv_multipart()
            if len(frames) != 1 or frames[0] not in (b"1", b"2", b"3", b"4"):
                event("disturbed", frames=[f.hex() for f in frames])
            else:
                heard += 1
                peer_is(int(frames[0]))
        if commands.fd in ready:
            commands.run()


if __name__ == "__main__":
    main()
