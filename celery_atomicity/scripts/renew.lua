-- renew: lengthen a lease where it stands.
-- KEYS[1] marker   then the locks
-- ARGV[1] lease id   ARGV[2] value   ARGV[3] ttl, ms   ARGV[4] grace, ms
-- ARGV[5] the server's run when we were last granted or renewed here, empty: never
-- ARGV[6] 1: put back what is absent, since a majority stands
-- returns 1 it stands, 0 it does not, -1 somebody else holds a key
-- It stands where all its keys hold our id, or are gone while the server sits out a restart that came
-- after our last renewal here: nobody else can have been granted them since. So it does where the
-- marker is gone, too: emptied (FLUSHALL), which is sat out like a restart.
local id = ARGV[1]
local absent = false
for k = 2, #KEYS do
  local value = redis.call('GET', KEYS[k])
  if not value then
    absent = true
  elseif string.sub(value, 1, #id) ~= id then
    return -1
  end
end
if absent and ARGV[6] ~= '1' then
  local marker = redis.call('HMGET', KEYS[1], 'run', 'since')
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  if ARGV[5] == '' or marker[1] == ARGV[5] then return 0 end
  if not marker[2] then
    marker[2] = now
    redis.call('HSET', KEYS[1], 'since', string.format('%d', now))
  end
  if now >= tonumber(marker[2]) + ARGV[4] then return 0 end
end
for k = 2, #KEYS do
  -- A server that is out of memory refuses to set, but not to lengthen.
  if redis.call('PEXPIRE', KEYS[k], ARGV[3]) == 0 then
    redis.call('SET', KEYS[k], ARGV[2], 'PX', ARGV[3])
  end
end
return 1
