-- register: count the caller in the current interval and tell what the one before closed on.
-- KEYS[1] base of the interval counters     ARGV[1] interval, ms   ARGV[2] a counter's life, ms
-- returns { N, our place in it from 1, count of N-1 or -1, server time in ms }
-- The counters' names are made here because N follows from the server's clock, so that all
-- replicas agree on it whatever their own clocks say. -1, since a nil would cut the answer short.
-- An interval is closed as soon as somebody is in the next one, who may have read its count: where
-- the clock has stepped back, callers go on to the last one that was begun.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local number = math.floor(now / ARGV[1])
local function counter(of)
  return string.format('%s:%d', KEYS[1], of)
end
while redis.call('EXISTS', counter(number + 1)) == 1 do
  number = number + 1
end
local place = redis.call('INCR', counter(number))
redis.call('PEXPIRE', counter(number), ARGV[2])
local before = redis.call('GET', counter(number - 1))
return { number, place, tonumber(before or -1), now }
