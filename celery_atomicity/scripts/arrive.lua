-- arrive: tell whether the server has restarted or failed over since somebody last connected.
-- KEYS[1] marker: hash of run, the server's run id, and since, when its last restart was noticed, ms
-- ARGV[1] the run id that this server has now   ARGV[2] its uptime, ms   ARGV[3] grace, ms
-- returns ms for which the server still grants no lease, 0 for none
-- A marker of another run: restarted, or promoted with keys missing that it never received. None:
-- started empty, or emptied (FLUSHALL) in this run, and leases of before may still be held. `since` is
-- kept for good: fences given after it start from it.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local marker = redis.call('HMGET', KEYS[1], 'run', 'since')
local uptime, grace = tonumber(ARGV[2]), tonumber(ARGV[3])
if marker[1] ~= ARGV[1] then
  local since = now
  if not marker[1] and not marker[2]
      and not string.find(redis.call('INFO', 'commandstats'), 'cmdstat_flush', 1, true) then
    since = now - uptime
  end
  redis.call('HSET', KEYS[1], 'run', ARGV[1], 'since', string.format('%d', since))
end
local since = tonumber(redis.call('HGET', KEYS[1], 'since') or 0)
return math.max(0, since + grace - now)
