-- raise: lift the fence to one that was given on another address.
-- KEYS[1] fence     ARGV[1] the fence to lift it to
-- returns { 1 lifted or 0 not, the last fence given here }
local last = tonumber(redis.call('GET', KEYS[1]) or '') or 0
if last >= tonumber(ARGV[1]) then return { 0, last } end
redis.call('SET', KEYS[1], ARGV[1])
return { 1, tonumber(ARGV[1]) }
