-- beat_settle: record ticks as sent or dropped, or give back what was begun and not sent.
-- KEYS for each tick: the record of its entry, the copy of it that runs
-- ARGV[1] life of a record, ms   ARGV[2] who we are   ARGV[3] the present, for a person
-- ARGV for each tick: slot or '', our copy, the new last run or '' to give it back,
--   1 if no other copy exists, when the first of those dropped was due or '', when it is due next
--   or ''
-- returns for each tick: 1 settled | 0 somebody else has begun it again, or the record is gone
local answers = {}
for n = 1, #KEYS / 2 do
  local record, at = KEYS[2 * n - 1], 6 * n - 2
  local slot, last, dropped, coming = ARGV[at], ARGV[at + 2], ARGV[at + 4], ARGV[at + 5]
  answers[n] = 0
  if redis.call('HGET', record, 'open:' .. slot) == ARGV[at + 1] then
    redis.call('HDEL', record, 'open:' .. slot)
    if last ~= '' then
      redis.call('HSET', record, 'last:' .. slot, last, 'by', ARGV[2], 'at', ARGV[3], 'next', coming)
      if dropped ~= '' then redis.call('HSET', record, 'dropped', dropped, 'dropped_at', ARGV[3]) end
      -- The only copy there will be: a redelivery of it needs no leave to run.
      if ARGV[at + 3] == '1' then redis.call('DEL', KEYS[2 * n]) end
    end
    redis.call('PEXPIRE', record, ARGV[1])
    answers[n] = 1
  end
end
return answers
