"""Balances in Redis, each a hash with the largest fence that has written it."""

from redis import Redis

# Redis runs a script as one step. Fences are compared as numbers: they fit into a Lua number until
# the year 2255.
WRITE = """
local last = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if tonumber(ARGV[2]) < last then return 0 end
redis.call('HSET', KEYS[1], 'balance', ARGV[1], 'fence', ARGV[2])
return 1
"""


class RedisLedger:
    def __init__(self, url):
        self._redis = Redis.from_url(url)
        self._write = self._redis.register_script(WRITE)

    def read(self, account):
        return int(self._redis.hget(f"balance:{account}", "balance") or 0)

    def write(self, account, balance, fence):
        """Whether it was written: not if a larger fence has written before."""
        return self._write(keys=[f"balance:{account}"], args=[balance, fence]) == 1
