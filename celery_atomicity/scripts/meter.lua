-- meter: add to the debt of each key and tell what the group has reached.
-- KEYS a hash each: d debt in ms, a server time in ms it was true at     ARGV a delta each, in ms
-- returns the debts in ms, in the order asked: integers, or texts where a number would be cut
-- A field that is missing or broken, or another type under the key, is no debt and heals. A clock
-- that steps back drains nothing. A debt ends at 2^53, where a millisecond more is not seen.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local most = 2 ^ 53

local function load(key)
  local state = redis.pcall('HMGET', key, 'd', 'a')
  if state.err then
    if not string.find(state.err, 'WRONGTYPE', 1, true) then error(state.err, 0) end
    redis.call('DEL', key)
    return 0
  end
  local debt, at = tonumber(state[1] or ''), tonumber(state[2] or '')
  if not debt or not at or debt ~= debt or at ~= at then return 0 end
  return math.max(0, math.min(debt, most) - math.max(0, now - at))
end

local debts, at = {}, string.format('%.0f', now)
for i, key in ipairs(KEYS) do
  local debt = math.min(most, math.max(0, load(key) + ARGV[i]))
  local text = string.format('%.17g', debt)
  redis.call('HSET', key, 'd', text, 'a', at)
  redis.call('PEXPIRE', key, string.format('%.0f', math.ceil(debt) + 10000))
  debts[i] = debt % 1 == 0 and debt or text
end
return debts
