-- release: let go of what a lease holds and leave the lines it stands in; let in who is next.
-- KEYS[1] marker   KEYS[2] fence   then for each key: its lock, its line, its line's last-seen times
-- ARGV[1] lease id   ARGV[2] ms for which the keys stay taken all the same (min_hold), 0: free now
-- ARGV[3] ms after which a waiter that was not seen is passed over
-- ARGV[4] only what was granted to the request of this number or an earlier one; empty: all
-- ARGV[5] channel on which to ring it, since it goes on waiting where it stood; empty: it leaves;
-- '-': it stood in no line when this was asked, so that this, served late, has none to leave
-- returns how many of the keys were still held
-- Nothing here is refused when the server is out of memory. A waiter whose process has died is not
-- subscribed to its channel any more, so that ringing it reaches nobody and the next one is rung.
-- Who waits for nothing else is granted the key right here, and told so with the ring, which saves a
-- round trip in which nobody has it. Only for the short while that it has asked for, since it may have
-- been frozen or cut off meanwhile; if it is well, it renews that. It counts from its last request:
-- where half of the while has passed since then, it is better rung and asks. The server's run goes
-- along, since a push also reaches who listens to a replica of this server.
local id, ring = ARGV[1], ARGV[5] or ''
local upto = ARGV[4] and ARGV[4] ~= '' and tonumber(ARGV[4])
local held = 0
local now

-- What to tell who waits for *lock*, last seen *at*, once it is granted to it; nothing where it has to
-- ask for it.
local function grant(lock, asks, at)
  local ttl, grace, value = string.match(asks, '^(%d+) (%d+) (.*)$')
  if not value or now - at > ttl / 2 then return end
  local marker = redis.call('HMGET', KEYS[1], 'run', 'since')
  local run, since = marker[1], tonumber(marker[2] or '')
  -- Whatever is unusual is left to the acquire script, which the ring makes it run.
  if not run or not since or since > now or now < since + grace then return end
  local fence = redis.pcall('INCR', KEYS[2])
  if type(fence) ~= 'number' then return end
  if fence <= 1 then redis.call('DEL', KEYS[2]) end
  if fence <= 1 or fence <= since * 1000 then return end
  if redis.pcall('SET', lock, value, 'PX', ttl).err then return end
  return string.format('%d %s %s', fence, run, value)
end

for k = 3, #KEYS, 3 do
  local lock, line, seen = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local value = redis.call('GET', lock)
  local ours = value and string.sub(value, 1, #id) == id
      and not (upto and tonumber(string.match(value, '^%x+%.(%d+)') or 0) > upto)
  if ours then
    held = held + 1
    if tonumber(ARGV[2]) > 0 then
      redis.call('PEXPIRE', lock, ARGV[2])
    else
      redis.call('DEL', lock)
      value = nil
    end
  end
  local first = redis.call('ZRANGE', line, 0, 1)
  local head = first[1]
  if head and not now then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  if head and ring == '' then
    -- Who held it has nothing but its place in line, and that is the first.
    local stood = (head == id or not ours) and redis.call('ZREM', line, id) > 0
    if stood and not ours then redis.call('HDEL', seen, id, id .. ':ring', id .. ':asks') end
    if head == id then head = first[2] end
  elseif head and ring ~= '-' and redis.call('ZSCORE', line, id) then
    redis.call('HSET', seen, id, string.format('%d', now), id .. ':ring', ring, id .. ':asks', '')
    redis.call('PEXPIRE', line, 2 * ARGV[3])
    redis.call('PEXPIRE', seen, 2 * ARGV[3])
  end
  while head and head ~= id and not value do
    local its = redis.call('HMGET', seen, head, head .. ':ring', head .. ':asks')
    local at = tonumber(its[1] or 0)
    if its[2] and at >= now - ARGV[3] then
      local granted = grant(lock, its[3] or '', at)
      if redis.call('PUBLISH', its[2], granted and head .. ' ' .. granted or head) > 0 then
        -- Its place is kept, should it have to give back; it counts as dead until then.
        if granted then redis.call('HDEL', seen, head, head .. ':ring', head .. ':asks') end
        break
      end
      if granted then redis.call('DEL', lock) end
    end
    redis.call('ZREM', line, head)
    redis.call('HDEL', seen, head, head .. ':ring', head .. ':asks')
    head = redis.call('ZRANGE', line, 0, 0)[1]
  end
end
return held
