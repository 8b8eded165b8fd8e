-- trial: find out which of the commands that the other scripts call fail here, and why.
-- KEYS[1] a name at which nothing stands     ARGV[1] a channel on which nobody listens
-- returns for each that failed its name and the error, one after the other
-- In one step, so that nobody meets what is written meanwhile; and nothing of it stays.
local key, failed = KEYS[1], {}

local function try(name, ...)
  local answer = redis.pcall(name, ...)
  if type(answer) == 'table' and answer.err then
    failed[#failed + 1] = name
    failed[#failed + 1] = answer.err
  end
end

try('TIME')
try('SET', key, '1', 'PX', 1000)
try('INCR', key)
try('PEXPIRE', key, 1000)
try('PTTL', key)
try('GET', key)
try('EXISTS', key)
try('DEL', key)
try('HSET', key, 'a', '1')
try('HSETNX', key, 'b', '1')
redis.pcall('PEXPIRE', key, 1000)
try('HGET', key, 'a')
try('HMGET', key, 'a', 'b')
try('HDEL', key, 'a', 'b')
try('ZADD', key, 1, 'a')
redis.pcall('PEXPIRE', key, 1000)
try('ZSCORE', key, 'a')
try('ZRANGE', key, 0, 0)
try('ZREMRANGEBYSCORE', key, '-inf', '(0')
try('ZREM', key, 'a')
redis.pcall('DEL', key)
try('PUBLISH', ARGV[1], '')
return failed
