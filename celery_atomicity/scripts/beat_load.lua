-- beat_load: read last runs; where there is none, counting starts with the one given.
-- KEYS[1] index of entries; for each unit: the record of its entry
-- ARGV[1] life of a record, ms   ARGV[2] who asks, and owns them
-- ARGV for each unit: entry, slot or '', last run to start with
-- returns the last run of each unit
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answers = {}
for n = 1, #KEYS - 1 do
  local record, entry, slot = KEYS[n + 1], ARGV[3 * n], ARGV[3 * n + 1]
  redis.call('HSETNX', record, 'last:' .. slot, ARGV[3 * n + 2])
  redis.call('HSET', record, 'entry', entry, 'owner:' .. slot, ARGV[2])
  redis.call('PEXPIRE', record, ARGV[1])
  redis.call('ZADD', KEYS[1], now, entry)
  answers[n] = redis.call('HGET', record, 'last:' .. slot)
end
-- What no beat has asked for as long as a record lives is gone, here as there.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%d', now - ARGV[1]))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return answers
