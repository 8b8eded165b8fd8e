"""
Deliberately broken builds, to see that the checker convicts them.

They are put in place in the fleet's own processes, by the fleet's own app; the package knows
nothing of them.
"""

from hashlib import sha1

from celery_atomicity.connection import Script
from celery_atomicity.connection.resp import pack_all
from celery_atomicity.integration.beat import ledger
from celery_atomicity.primitives.keeper import Keeper
from celery_atomicity.primitives.membership import Membership
from chaos.table import Table

_CLAIMS_ANYTHING = """
local answers = {}
for n = 1, #KEYS / 2 do
  redis.call('HSET', KEYS[2 * n - 1], 'open:' .. ARGV[3 * n], ARGV[3 * n + 2])
  answers[n] = 1
end
return answers
"""


def renewal_off():
    """No lease is renewed."""

    def renew(_self, batch):
        for one in batch:
            one.postpone(one.deadline)

    Keeper._renew = renew


def fence_off():
    """The guarded table takes every write, whatever its fence."""

    def take(self, key, fence):
        self.connection.execute("UPDATE row SET fence = ? WHERE key = ?", (fence, key))
        return True

    Table.take = take


def agreement_off():
    """An assignment rests on one interval: what it implies is owned at once."""
    pair_of = Membership._pair_of

    def at_once(self, last, answer):
        self._pair = pair_of(self, last, answer)
        return self._pair

    own = Membership._own

    def begin_now(self, pair, last, answer):
        own(self, pair, last, answer)
        self.begins = min(self.begins, answer.sent)

    Membership._pair_of = at_once
    Membership._own = begin_now


def claim_off():
    """A beat that claims a tick is always told that it is the first."""
    script = Script("beat_claim")
    script.source = _CLAIMS_ANYTHING
    script.sha = sha1(script.source.encode(), usedforsecurity=False).hexdigest()
    script._by_hash = pack_all(("EVALSHA", script.sha))
    script._in_full = pack_all(("EVAL", script.source))
    ledger._CLAIM = script


BUILDS = {
    "renewal": renewal_off,
    "fence": fence_off,
    "agreement": agreement_off,
    "claim": claim_off,
}
