"""One libzmq socket that tells all that its monitor is told.

Each event becomes a line {"event": "monitor", "number": ..., "value": ...}. The
socket connects and binds as the test commands.
"""

import argparse

import zmq
import zmq.utils.monitor

from lines import Commands, event


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--type", required=True)
    p.add_argument("--option", action="append", default=[], help="NAME=integer")
    args = p.parse_args()

    context = zmq.Context()
    s = context.socket(getattr(zmq, args.type))
    s.linger = 0
    for option in args.option:
        name, _, number = option.partition("=")
        s.setsockopt(getattr(zmq, name), int(number))
    monitor = s.get_monitor_socket()

    def bind(endpoint):
        try:
            s.bind(endpoint)
        except zmq.ZMQError as e:
            return {"failed": e.errno}
        return {"endpoint": s.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode("ascii")}

    def unbind(endpoint):
        s.unbind(endpoint)

    def connect(endpoint):
        s.connect(endpoint)

    def stop():
        s.monitor(None, 0)  # events after the socket's end cannot be seen

    commands = Commands({"bind": bind, "unbind": unbind, "connect": connect, "stop": stop})
    event("ready", endpoint="", libzmq=zmq.zmq_version())
    poller = zmq.Poller()
    poller.register(commands.fd, zmq.POLLIN)
    poller.register(monitor, zmq.POLLIN)
    while True:
        ready = dict(poller.poll())
        if monitor in ready:
            e = zmq.utils.monitor.recv_monitor_message(monitor)
            event("monitor", number=int(e["event"]), value=int(e["value"]))
            if e["event"] == zmq.EVENT_MONITOR_STOPPED:
                poller.unregister(monitor)
        if commands.fd in ready:
            commands.run()


if __name__ == "__main__":
    main()
