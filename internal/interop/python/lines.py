"""JSON lines between a test and a program: one object a line, both ways.

The test writes commands to stdin, each with an "id" and an "op". The program
answers each with one line that carries the same "id", and either the answer's
fields or "error". A line with "event" in place of "id" is an event that
the program reports unasked; the first one is always "ready".

End of stdin ends the program at once, so that none outlives its test.
"""

import base64
import collections
import hashlib
import json
import os
import sys
import threading
import time
import traceback


def encode(bytes):
    return base64.b64encode(bytes).decode("ascii")


def decode(text):
    """The bytes of base64 text; null, which is how Go writes nil, is none."""
    return b"" if text is None else base64.b64decode(text, validate=True)


def pattern(seed, message, frame, size):
    """Bytes that the test can make as well, from the same four numbers."""
    label = "%d/%d/%d" % (seed, message, frame)
    return hashlib.shake_128(label.encode("ascii")).digest(size)


def digest(pairs):
    """One hash over a whole map, independent of the order of its keys."""
    h = hashlib.sha256()
    for key in sorted(pairs):
        value = pairs[key]
        h.update(len(key).to_bytes(8, "big") + key)
        h.update(len(value).to_bytes(8, "big") + value)
    return h.hexdigest()


class Failure(Exception):
    """A command that could not be carried out; its text goes to the test."""


class Later:
    """What a command returns that is answered only once check() gives an answer."""

    def __init__(self, check, seconds):
        self.check = check
        self.deadline = time.monotonic() + seconds


class Commands:
    """Takes commands from stdin, and answers them from the program's own thread.

    A thread of its own reads stdin, because a program that is busy with a
    socket must still end when its test has gone. `fd` becomes readable when a
    command waits, so that it can stand in a zmq.Poller beside the sockets.
    """

    def __init__(self, handlers):
        self.handlers = handlers
        self.waiting = collections.deque()
        self.later = []
        self.fd, self._wake = os.pipe()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in sys.stdin.buffer:
            self.waiting.append(line)
            os.write(self._wake, b"\0")
        os._exit(0)

    def run(self):
        """Carries out the commands that wait; call it when fd is readable."""
        for _ in os.read(self.fd, 4096):
            self._one(self.waiting.popleft())

    def _one(self, line):
        command = json.loads(line)
        number = command.pop("id")
        try:
            op = command.pop("op")
            handler = self.handlers.get(op)
            if handler is None:
                raise Failure("no such op: %r" % op)
            # Go writes null for nil: an argument that was left out.
            given = {name: v for name, v in command.items() if v is not None}
            answer = handler(**given)
        except Exception as e:
            # The test judges every error.
            if not isinstance(e, Failure):
                traceback.print_exc()
            write({"id": number, "error": "%s: %s" % (type(e).__name__, e)})
            return
        if isinstance(answer, Later):
            self.later.append((number, answer))
            self.settle()
        else:
            write(dict(answer or {}, id=number))

    def settle(self):
        """Answers those commands that waited for something and now have it."""
        if not self.later:
            return
        still = []
        for number, wait in self.later:
            answer = wait.check()
            if answer is not None:
                write(dict(answer, id=number))
            elif time.monotonic() > wait.deadline:
                write({"id": number, "error": "timed out"})
            else:
                still.append((number, wait))
        self.later = still


def write(message):
    # One write a line: a pipe keeps lines whole only for a single writer, and
    # this one is always the program's own thread.
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def event(name, **fields):
    write(dict(fields, event=name))
