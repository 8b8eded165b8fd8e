-- release: let go of what a lease holds and leave the lines it stands in; ring who is next.
-- KEYS for each key: its lock, its line, its line's last-seen times
-- ARGV[1] lease id   ARGV[2] ms for which the keys stay taken all the same (min_hold), 0: free now
-- ARGV[3] ms after which a waiter that was not seen is passed over
-- ARGV[4] only what was granted to the request of this number or an earlier one; empty: all
-- ARGV[5] channel on which to ring it, since it goes on waiting where it stood; empty: it leaves;
-- '-': it stood in no line when this was asked, so that this, served late, has none to leave
-- returns how many of the keys were still held
-- Nothing here is refused when the server is out of memory. A waiter whose process has died is not
-- subscribed to its channel any more, so that ringing it reaches nobody and the next one is rung.
local id, ring = ARGV[1], ARGV[5] or ''
local upto = ARGV[4] and ARGV[4] ~= '' and tonumber(ARGV[4])
local held = 0
local now
for k = 1, #KEYS, 3 do
  local lock, line, seen = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local value = redis.call('GET', lock)
  if value and string.sub(value, 1, #id) == id
      and not (upto and tonumber(string.match(value, '^%x+%.(%d+)') or 0) > upto) then
    held = held + 1
    if tonumber(ARGV[2]) > 0 then
      redis.call('PEXPIRE', lock, ARGV[2])
    else
      redis.call('DEL', lock)
      value = nil
    end
  end
  local head = redis.call('ZRANGE', line, 0, 0)[1]
  if head then
    if not now then
      local time = redis.call('TIME')
      now = time[1] * 1000 + math.floor(time[2] / 1000)
    end
    if ring == '' then
      redis.call('ZREM', line, id)
      redis.call('HDEL', seen, id, id .. ':ring')
    elseif ring ~= '-' and redis.call('ZSCORE', line, id) then
      redis.call('HSET', seen, id, string.format('%d', now), id .. ':ring', ring)
      redis.call('PEXPIRE', line, 2 * ARGV[3])
      redis.call('PEXPIRE', seen, 2 * ARGV[3])
    end
    head = not value and redis.call('ZRANGE', line, 0, 0)[1]
  end
  while head and head ~= id do
    local at = tonumber(redis.call('HGET', seen, head) or 0)
    local its = redis.call('HGET', seen, head .. ':ring')
    if its and at >= now - ARGV[3] and redis.call('PUBLISH', its, head) > 0 then break end
    redis.call('ZREM', line, head)
    redis.call('HDEL', seen, head, head .. ':ring')
    head = redis.call('ZRANGE', line, 0, 0)[1]
  end
end
return held
