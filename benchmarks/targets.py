"""What the design wants to see, and what is known about those that are hard to reach."""

from benchmarks.report import Target

SCRIPTS = (
    "Two trivial round trips are less than what any lock needs: the server runs two scripts that "
    "read, compare, write and count fences. The row of the raw lock scripts shows that share; the "
    "rest is the Python above the socket, 110 calls for both: an id, the deadline, the keeper "
    "that renews. On one core nothing else is counted."
)
PYTHON = (
    "What is above the raw script is Python: checking the call, packing it, reading the answer."
)

SLOTS = Target(3.0)
OWNS = Target(
    1.0,
    of="median",
    why="A microsecond says more of the machine than a ratio: the list beside it is the measure.",
)
LOCK = Target(1.25, why=SCRIPTS)
FASTEST = Target(
    1.0,
    why="redis-py's Lock sends SET NX and a script of one comparison; ours also keeps the line, "
    "the fence and the restart's grace on the server, and tells the keeper.",
)
ADDRESSES = Target(
    1.5,
    why="Every address is sent to and read from by one thread; servers that share one core also "
    "answer one after the other, which separate hosts do not.",
)
MINORITY = Target(
    1.2,
    of="both",
    why="A late answer of a server that is back, or the thread that looks whether it is, takes the "
    "processor from a call now and then.",
)
HANDOVER = Target(
    1.5,
    why="The release grants to the next and rings it, like the raw grant, but it also looks who "
    "of the line is alive and counts a fence. In a trace a holder that had slept took 200 us of "
    "Python, with cold caches, until the release was sent, and the server a tenth of a millisecond "
    "for it; it answers who releases before it rings, who goes first where both share a core. A "
    "BLPOP is answered first.",
)
TURNS = Target(
    0.9,
    at_least=True,
    why="A turn takes the way from a release to its successor, see above, and on fewer cores than "
    "processes the Python of all the others competes with it.",
)
FAIRNESS = Target(1.1, of="median")
LONGEST = Target(
    3.0,
    why="On fewer cores than processes a waiter that was rung waits for a processor too; the raw "
    "grant beside it shows how much of it is the machine's.",
)
WAITING = Target(1.0, of="median")
METER = Target(1.15, why=PYTHON)
BATCH = Target(
    1.5,
    why="Of two thousand keys the client packs each and the server parses each before the script "
    "runs; the raw script's row has that parsing too.",
)
TASK = Target(
    0.85,
    at_least=True,
    why="A task that does nothing takes well under a millisecond; two round trips and their Python "
    "are a fifth of it. The raw lock in the body shows what any lock costs there.",
)
KEY = Target(2.0, of="median")
BEAT = Target(1.3)
