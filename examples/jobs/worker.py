"""A worker of jobs: worker.py [ENDPOINT]"""
import sys
import time

import zmq

jobs = zmq.Context().socket(zmq.DEALER)
jobs.connect(*sys.argv[1:] or ("tcp://127.0.0.1:5559",))
while True:
    number, job = jobs.recv_multipart()
    time.sleep(0.01)  # the work
    jobs.send_multipart([number, job.upper()])
