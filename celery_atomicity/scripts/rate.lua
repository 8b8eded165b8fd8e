-- rate: start now, be given a place in time, or be refused, under several limits at once.
-- KEYS a hash each, on the server's clock, times in ms:
--   e how far ahead the last start lies that was charged; s units that it leaves started, which
--     drain at the rate from then on; p promised units, which drain from now on
--   a when all this was true; r rate, b burst of the last call
--   o when the hash was made: a promise of an earlier one is a sign that data was lost
-- ARGV[1] hold back for so long, 0: judge     ARGV[2] how long one that was charged may sleep
-- ARGV[3..], seven a key: rate per ms, burst, cost, token ('' or the o of the promise, with a '*'
--   if it was told to come again), how long a wait may be slept out, how far a place may lie
--   (below 0: none), '' or the o that the caller has lately seen
-- returns { 1 start | 2 a place | 3 come again, keeping the promise | 0 refused, wait as text,
--   which key decided, from 1, the o of each key ... }
-- The rules and their reasons are those of primitives/rate.py, which a test holds this to.
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local back, lost = false, false
local limits = {}

local function text(number) return string.format('%.17g', number) end

local function hold(it, ms)
  it.s = math.max(0, it.s - it.rate * math.max(0, ms - it.e), it.burst - it.cost)
  it.e = math.max(it.e, ms)
  it.p = math.max(it.p, it.s + it.rate * it.e)
end

local function recall(key)
  local state = redis.pcall('HMGET', key, 's', 'e', 'p', 'a', 'r', 'o')
  if state.err then
    if not string.find(state.err, 'WRONGTYPE', 1, true) then error(state.err, 0) end
    redis.call('DEL', key)
    return nil
  end
  local numbers = {}
  for f = 1, 6 do
    numbers[f] = tonumber(state[f] or '')
    if not numbers[f] or numbers[f] ~= numbers[f] or math.abs(numbers[f]) == math.huge then
      return nil
    end
  end
  return numbers, state[6]
end

local function load(i)
  local at = 7 * i - 4
  local it = {
    rate = tonumber(ARGV[at]), burst = tonumber(ARGV[at + 1]), cost = tonumber(ARGV[at + 2]),
    token = (string.gsub(ARGV[at + 3], "%*$", "")), again = string.sub(ARGV[at + 3], -1) == '*',
    patience = tonumber(ARGV[at + 4]), longest = tonumber(ARGV[at + 5]),
    i = i, s = 0, e = 0, p = 0, born = text(now),
  }
  local was, born = recall(KEYS[i])
  if was then
    local elapsed = math.max(0, now - was[4])
    it.known, it.born = true, born
    it.s = math.max(0, was[1] - it.rate * math.max(0, elapsed - was[2]))
    it.e = math.max(0, was[2] - elapsed)
    it.p = math.max(it.s + it.rate * it.e,
      was[3] + (it.rate - was[5]) * was[2] - it.rate * elapsed)
  end
  back = back or it.token ~= ''
  lost = lost or it.token ~= '' and it.token ~= it.born
    or ARGV[at + 6] ~= '' and ARGV[at + 6] ~= it.born
  return it
end

local function start_of(it) return it.e + math.max(0, (it.s + it.cost - it.burst) / it.rate) end

local function place_of(it)
  return math.max(start_of(it), (it.p + it.cost - it.burst) / it.rate)
end

local function answer(kind, ms, which)
  local reply = { kind, text(ms), which }
  for i, it in ipairs(limits) do
    if kind ~= 0 or it.known then
      redis.call('HSET', KEYS[i], 's', text(it.s), 'e', text(it.e), 'p', text(it.p),
        'a', text(now), 'r', text(it.rate), 'b', text(it.burst), 'o', it.born)
      local ttl = math.min(2 ^ 53, math.ceil(it.p / it.rate) + 10000)
      redis.call('PEXPIRE', KEYS[i], string.format('%.0f', ttl))
    end
    reply[3 + i] = it.born
  end
  return reply
end

for i = 1, #KEYS do limits[i] = load(i) end
if lost then
  for _, it in ipairs(limits) do
    local left = ARGV[2] - math.max(0, now - tonumber(it.born))
    if left > 0 then hold(it, left) end
  end
end

local held = tonumber(ARGV[1])
if held > 0 then
  for _, it in ipairs(limits) do hold(it, held) end
  return answer(1, held, 1)
end

local keeps, slowest, worst, last = back, nil, nil, nil
for _, it in ipairs(limits) do
  it.start, it.place = start_of(it), place_of(it)
  it.wait = (back or it.start <= it.patience) and it.start or it.place
  keeps = keeps and not it.again
  if not slowest or it.wait > slowest.wait then slowest = it end
  if it.wait > it.patience and not (worst and worst.wait >= it.wait) then worst = it end
  if not last or it.place > last.place then last = it end
end

if not worst then
  local when, idle = slowest.wait, 0
  for _, it in ipairs(limits) do
    idle = math.max(idle, (when - it.start) * it.rate / it.cost)
  end
  if keeps and idle > 0.5 and when <= slowest.longest then return answer(3, when, slowest.i) end
  for _, it in ipairs(limits) do
    local fresh = it.token == '' and (back or it.start == it.place)
    it.s = math.max(0, it.s - it.rate * (when - it.e)) + it.cost
    it.e = when
    it.p = math.max(it.s + it.rate * it.e, fresh and it.p + it.cost or it.p)
  end
  return answer(1, when, 0)
end

local next_to_start = worst.cost / worst.rate
if keeps and worst.token ~= '' and worst.wait <= math.min(worst.longest, next_to_start) then
  return answer(3, worst.wait, worst.i)
end
if last.place > last.longest then return answer(0, last.place, last.i) end
last.p = last.p + last.cost
return answer(2, last.place, last.i)
