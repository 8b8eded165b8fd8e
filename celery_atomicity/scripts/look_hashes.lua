-- look_hashes: fields of debts or limits, for a person; nothing is written.
-- KEYS a hash each     ARGV the fields to read
-- returns { server time in ms, as text, the fields of the first hash ... of the second ... }
-- A field that is not there, or whose key is no hash, is empty.
local time = redis.call('TIME')
local answers = { string.format('%.3f', time[1] * 1000 + time[2] / 1000) }
for _, key in ipairs(KEYS) do
  local state = redis.pcall('HMGET', key, unpack(ARGV))
  for f = 1, #ARGV do
    answers[#answers + 1] = state[f] or ''
  end
end
return answers
