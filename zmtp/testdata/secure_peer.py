"""A libzmq DEALER with a security mechanism, which sends messages back.

It tells each event of its monitor, with the event's value.
"""

import argparse
import threading

import zmq
import zmq.utils.monitor
import zmq.utils.z85

from lines import Commands, event


def judge(context, args):
    """Answers ZAP requests: PLAIN by the password, CURVE by the client's key."""
    s = context.socket(zmq.REP)
    s.bind("inproc://zeromq.zap.01")

    def run():
        while True:
            version, number, _, _, _, mechanism, *credentials = s.recv_multipart()
            if mechanism == b"PLAIN":
                good = credentials == [b"admin", b"secret"]
            else:
                good = zmq.utils.z85.encode(credentials[0]).decode() == args.allow
            status = [b"200", b"OK", b"bob"] if good else [b"400", b"no", b""]
            s.send_multipart([version, number] + status + [b""])

    threading.Thread(target=run, daemon=True).start()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--connect")
    p.add_argument("--plain-server", action="store_true")
    p.add_argument("--plain", nargs=2)
    p.add_argument("--curve-server", help="secret key")
    p.add_argument("--curve", nargs=3, help="public, secret and server's key")
    p.add_argument("--allow", help="public key that is let in")
    p.add_argument("--heartbeat", type=int)
    args = p.parse_args()

    context = zmq.Context()
    s = context.socket(zmq.DEALER)
    s.linger = 0
    if args.plain_server:
        s.plain_server = True
    if args.plain:
        s.plain_username, s.plain_password = (word.encode() for word in args.plain)
    if args.curve_server:
        s.curve_server = True
        s.curve_secretkey = args.curve_server.encode()
    if args.curve:
        s.curve_publickey, s.curve_secretkey, s.curve_serverkey = (key.encode() for key in args.curve)
    if args.heartbeat:
        s.heartbeat_ivl = args.heartbeat
        s.heartbeat_timeout = 60000
    monitor = s.get_monitor_socket()
    if args.connect:
        s.connect(args.connect)
    else:
        judge(context, args)
        s.bind("tcp://127.0.0.1:*")

    commands = Commands({})
    event("ready", endpoint=s.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode("ascii"))
    poller = zmq.Poller()
    for source in commands.fd, s, monitor:
        poller.register(source, zmq.POLLIN)
    while True:
        ready = dict(poller.poll())
        if commands.fd in ready:
            commands.run()
        if monitor in ready:
            e = zmq.utils.monitor.recv_monitor_message(monitor)
            event(zmq.Event(e["event"]).name, value=e["value"])
        if s in ready:
            s.send_multipart(s.recv_multipart())


if __name__ == "__main__":
    main()
