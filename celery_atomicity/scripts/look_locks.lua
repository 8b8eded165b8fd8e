-- look_locks: who holds keys and how many wait for them, for a person; nothing is written.
-- KEYS for each key: its lock, its line
-- returns for each key: the lock's value, ms until it is free or -1, how many stand in line
-- A value is empty where nobody holds the key, or something else than a lock stands there.
local answers = {}
for k = 1, #KEYS, 2 do
  local value = redis.pcall('GET', KEYS[k])
  local waiting = redis.pcall('ZCARD', KEYS[k + 1])
  answers[#answers + 1] = type(value) == 'string' and value or ''
  answers[#answers + 1] = redis.call('PTTL', KEYS[k])
  answers[#answers + 1] = type(waiting) == 'number' and waiting or 0
end
return answers
