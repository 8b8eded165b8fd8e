-- acquire: take all the keys for a lease, or none; stand in line for them where asked to.
-- KEYS[1] marker   KEYS[2] fence   then for each key: its lock, its line, its line's last-seen times
-- ARGV[1] lease id   ARGV[2] value: id, dot, number of the request, blank, holder
-- ARGV[3] ttl, ms   ARGV[4] grace, ms
-- ARGV[5] channel on which to ring the waiter, empty: do not stand in line
-- ARGV[6] ms after which a waiter that was not seen is passed over
-- ARGV[7] 1: whoever lets go may grant to it without its asking (one key, one address), for as long as
-- ARGV[6] at the most
-- returns { verdict, fence, ms to wait, holder }; verdict 1 granted, 0 taken, 2 not yet our turn,
-- 3 sitting out a restart
-- Asked again with the same id, it grants again: an answer may have been lost. A request that comes
-- after a later one of its id changes nothing. The fence is one more
-- than the last; it starts from the clock in microseconds, also after a restart or failover that may
-- have lost some, so that it never falls back (it would have to be raised a million times a second).
local id, ring = ARGV[1], ARGV[5]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local since = tonumber(redis.call('HGET', KEYS[1], 'since') or '')
if not since or since > now then
  -- No marker: emptied (FLUSHALL) since the caller connected, and what was held may still be. Or the
  -- clock went back since then, and must not make us sit out for as long.
  since = now
  redis.call('HSET', KEYS[1], 'since', string.format('%d', since))
end
local verdict, pause, holder = 1, 0, ''
local ours = true
local stood = {}
local function number_in(value)
  return tonumber(string.match(value, '^%x+%.(%d+)') or 0)
end

for k = 3, #KEYS, 3 do
  local value = redis.call('GET', KEYS[k])
  if not value then
    ours = false
  elseif string.sub(value, 1, #id) ~= id then
    ours = false
    verdict, holder = 0, value
    pause = math.max(pause, redis.call('PTTL', KEYS[k]))
  elseif number_in(value) > number_in(ARGV[2]) then
    return { 0, 0, 0, '' }
  end
end
if verdict == 1 and not ours then
  for k = 4, #KEYS, 3 do
    local head = redis.call('ZRANGE', KEYS[k], 0, 0)[1]
    while head and head ~= id
        and tonumber(redis.call('HGET', KEYS[k + 1], head) or 0) < now - ARGV[6] do
      redis.call('ZREM', KEYS[k], head)
      redis.call('HDEL', KEYS[k + 1], head, head .. ':ring', head .. ':asks')
      head = redis.call('ZRANGE', KEYS[k], 0, 0)[1]
    end
    stood[k] = head == id
    if head and head ~= id then verdict = 2 end
  end
  if verdict == 1 and now < since + ARGV[4] then
    verdict, pause = 3, since + ARGV[4] - now
  end
end

if verdict ~= 1 then
  if ring ~= '' then
    -- Whoever lost a place in one line gets a new one in all: two that stand in several lines must
    -- stand in the same order in each, or both wait for the other.
    local stands = true
    for k = 4, #KEYS, 3 do
      stands = stands and redis.call('ZSCORE', KEYS[k], id)
    end
    for k = 4, #KEYS, 3 do
      if not stands then
        redis.call('ZADD', KEYS[k], string.format('%d%06d', time[1], time[2]), id)
      end
      local asks = ''
      if ARGV[7] == '1' then
        asks = string.format('%d', math.min(ARGV[3], ARGV[6])) .. ' ' .. ARGV[4] .. ' ' .. ARGV[2]
      end
      redis.call('HSET', KEYS[k + 1], id, string.format('%d', now), id .. ':ring', ring, id .. ':asks', asks)
      redis.call('PEXPIRE', KEYS[k], 2 * ARGV[6])
      redis.call('PEXPIRE', KEYS[k + 1], 2 * ARGV[6])
    end
  end
  return { verdict, 0, pause, holder }
end

local fence = redis.pcall('INCR', KEYS[2])
if type(fence) ~= 'number' or fence <= 1 or fence <= since * 1000 then
  local last = type(fence) == 'number' and fence > 1 and fence or time[1] * 1000000 + time[2]
  fence = math.max(last, since * 1000) + 1
  redis.call('SET', KEYS[2], string.format('%d', fence))
end
for k = 3, #KEYS, 3 do
  redis.call('SET', KEYS[k], ARGV[2], 'PX', ARGV[3])
  -- Its place is kept, should it have to give back; it counts as dead until then.
  if ours or stood[k + 1] then
    redis.call('HDEL', KEYS[k + 2], id, id .. ':ring', id .. ':asks')
  end
end
return { 1, fence, tonumber(ARGV[3]), '' }
