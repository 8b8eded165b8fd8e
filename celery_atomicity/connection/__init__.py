"""
One set of clients per process, and the only place that knows redis-py.

    script    a decision's source, packed for the wire
    resp      commands to bytes, bytes to answers
    link      a connected socket, and who waits for an answer on it
    tls       what is different about servers that speak TLS
    server    one address: connecting, its outages
    sense     nonsense, to those who only look
    question  one question and its answers as they come
    turns     whose thread reads for all
    exchange  questions out, answers in, for all threads of the process
    clients   asking one address, or all of them at once
    probe     looking at one address, whatever it turns out to be
"""

from celery_atomicity.connection.clients import Clients
from celery_atomicity.connection.probe import Probe
from celery_atomicity.connection.question import Reply
from celery_atomicity.connection.resp import ErrorReply
from celery_atomicity.connection.script import Call, Script
from celery_atomicity.connection.sense import makes_sense

__all__ = ["Call", "Clients", "ErrorReply", "Probe", "Reply", "Script", "makes_sense"]
