-- beat_admit: let the first copy of a tick run, and each redelivery of that copy.
-- KEYS[1] the copy that runs   KEYS[2] the record of the tick's entry
-- ARGV[1] slot or ''   ARGV[2] last run the tick follows from   ARGV[3] the copy at hand
-- ARGV[4] life of a doubt, ms
-- returns 1 run | 0 another copy has run or runs
local chosen = redis.call('GET', KEYS[1])
if chosen and chosen ~= '' then
  return chosen == ARGV[3] and 1 or 0
end
-- Recorded, and nobody began it a second time: no other copy exists, nor will there be one.
local last = redis.call('HGET', KEYS[2], 'last:' .. ARGV[1])
if not chosen and last and last ~= ARGV[2] then
  return 1
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
return 1
