-- beat_claim: begin to send ticks, each for the last run that it follows from.
-- KEYS for each tick: the record of its entry, the copy of it that runs
-- ARGV[1] life of a record, ms   ARGV[2] life of a doubt, ms
-- ARGV for each tick: slot or '', last run it follows from, our copy
-- returns for each tick: 0 another last run stands | 1 begun | 2 begun again, two copies may exist
local answers = {}
for n = 1, #KEYS / 2 do
  local record, slot, copy = KEYS[2 * n - 1], ARGV[3 * n], ARGV[3 * n + 2]
  if redis.call('HGET', record, 'last:' .. slot) ~= ARGV[3 * n + 1] then
    answers[n] = 0
  elseif redis.call('HSETNX', record, 'open:' .. slot, copy) == 1 then
    answers[n] = 1
  else
    -- Whoever began may be dead or asleep, before or after its publish: workers decide.
    redis.call('HSET', record, 'open:' .. slot, copy)
    redis.call('SET', KEYS[2 * n], '', 'PX', ARGV[2], 'NX')
    answers[n] = 2
  end
  redis.call('PEXPIRE', record, ARGV[1])
end
return answers
