"""A worker of the pipeline: worker.py [JOBS-ENDPOINT DONE-ENDPOINT]"""
import sys
import time

import zmq

jobs_at, done_at = sys.argv[1:] or ("tcp://127.0.0.1:5557", "tcp://127.0.0.1:5558")
context = zmq.Context()
jobs = context.socket(zmq.PULL)
jobs.rcvhwm = 1  # so that other workers get the jobs that this one has no time for
jobs.connect(jobs_at)
done = context.socket(zmq.PUSH)
done.connect(done_at)
while True:
    number, job = jobs.recv_multipart()
    time.sleep(0.01)  # the work
    done.send_multipart([number, job.upper()])
