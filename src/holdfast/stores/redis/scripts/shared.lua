-- Put before the scripts that change runs: the words of a call, the clock, and changes that are
-- gathered first and written together at the end.
--
-- KEYS[1]  hash of numbers: `trail` is the highest number of a trail row
-- KEYS[2]  sorted set of all trail rows: score is the number, member "<number> <run> <type>"
-- KEYS[3]  channel of wake-ups
-- ARGV[1]  the clock of a test in microseconds, or '': the server's clock counts
-- ARGV[2]  start of the hour whose counts per minute are in KEYS, as the caller's clock has it
-- ARGV[3]  what the script is to do, as MessagePack: one word, because the server takes much longer for many.
--          Keys are in it by their place in KEYS. Numbers above 2^53 come as text.
--
-- A script reads and checks everything before it writes: it calls `check_all` before its own writes, and
-- `carry_out` for those that were gathered. Values of users are stored as they are given.
--#include counting.lua
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000000 + time[2])
end
local instant = tonumber(now)
-- '%d' is much faster, but on some machines it has only 32 bits.
local WHOLE = string.format('%d', 4503599627370496) == '4503599627370496' and '%d' or '%.0f'
local function whole(value) return string.format(WHOLE, value) end
-- The same for numbers that many runs of a call have in common.
local wholes = {}
local function usual(value)
  local text = wholes[value]
  if not text then
    text = whole(value)
    wholes[value] = text
  end
  return text
end
-- The minute of the counts. A caller whose clock is a little off must not leave the hour in KEYS.
local hour = tonumber(ARGV[2])
local minute = whole(math.max(hour, math.min(hour + 3540000000, instant - instant % 60000000)))

local numbered_by = redis.call('HMGET', KEYS[1], 'trail', 'server')
local trail, known_server = tonumber(numbered_by[1] or '0'), numbered_by[2]
local first_trail = trail

-- The id of the server's replication history. A replica that takes over begins another one, and so does a server
-- that was a replica meanwhile, and one that was restarted. Nil: the server does not say.
local function history_of()
  local info = redis.pcall('INFO', 'replication')
  return type(info) == 'string' and string.match(info, 'master_replid:(%x+)') or nil
end

-- Begins an epoch, as epoch.lua does, if the namespace knows another server. A connection may outlive a failover
-- and the one back to its server: then no greeting has begun one. Writes may have been lost, so what the caller
-- has read before does not count. Returns true when an epoch has begun. This is written at once: it is right by
-- itself, whatever becomes of the rest.
local function begins_epoch()
  local history = history_of()
  if not known_server or not history or string.sub(known_server, -#history) == history then return false end
  local process = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') or ''
  local time = redis.call('TIME')
  trail = math.max(trail, time[1] * 1000000 + time[2]) + 1 + tonumber(string.sub(history, 1, 3), 16) % 1024
  first_trail = trail
  redis.call('HSET', KEYS[1], 'server', process .. ':' .. history, 'epoch', whole(trail), 'trail', whole(trail))
  return true
end

-- Changes that are carried out at the end: a command, its key, and a list of its other words.
local commands = {}
local function gather(command, name, words) commands[#commands + 1] = {command, name, words} end
local function later(command, name, ...) gather(command, name, {...}) end

-- Members that enter or leave a sorted set: one call writes those of all runs.
local entered, left = {}, {}
local function enter(set, score, member)
  local words = entered[set]
  if not words then
    words = {}
    entered[set] = words
    gather('ZADD', set, words)
  end
  local count = #words
  words[count + 1], words[count + 2] = score, member
end
local function leave(set, member)
  local words = left[set]
  if not words then
    words = {}
    left[set] = words
    gather('ZREM', set, words)
  end
  words[#words + 1] = member
end

-- The next row of the trail. Returns its number, and its member in the trail of the run.
local numbered, last = {}, 0
local function row_of(id, what, data)
  trail = trail + 1
  local seq = whole(trail)
  numbered[last + 1], numbered[last + 2] = seq, seq .. ' ' .. id .. ' ' .. what
  last = last + 2
  return seq, seq .. ' ' .. what .. ' ' .. now .. ' ' .. data
end

-- The run of a hash by its name.
local before_id = #tag + 5
local function id_of(hash) return string.sub(hash, before_id) end

local TYPES = {DEL = false, UNLINK = false, EXISTS = false, PUBLISH = false, EXPIRE = false, SET = 'string'}
for _, command in ipairs({'ZADD', 'ZREM', 'ZINCRBY', 'ZREMRANGEBYSCORE'}) do TYPES[command] = 'zset' end
for _, command in ipairs({'HSET', 'HDEL', 'HINCRBY'}) do TYPES[command] = 'hash' end
-- Commands that fail for a key of another type, and cost less than TYPE.
local SIZES = {zset = 'ZCARD', hash = 'HLEN', string = 'STRLEN'}
local checked = {}
local function check(name, wanted)
  if wanted == nil then error('a command whose type is not in TYPES') end
  if not wanted or checked[name] == wanted then return end
  checked[name] = wanted
  local size = redis.pcall(SIZES[wanted], name)
  if type(size) == 'table' then error('the key ' .. name .. ' is no ' .. wanted .. ': ' .. size.err) end
end

-- HINCRBY takes no other text for a number: neither 1.5 nor 007.
local function is_whole(text) return text == '0' or (#text < 18 and string.find(text, '^%-?[1-9]%d*$')) end

local function check_counts(hashes)
  for hash, fields in pairs(hashes) do
    check(hash, 'hash')
    for field in pairs(fields) do
      local known = redis.call('HGET', hash, field)
      if known and not is_whole(known) then
        error('WRONGTYPE the field ' .. field .. ' of ' .. hash .. ' is no number')
      end
    end
  end
end

-- Looks at the type of each key that is written: once the first write is done, no later one can fail.
local function check_all()
  check(KEYS[2], 'zset')
  for i = 1, #commands do
    local command = commands[i]
    check(command[2], TYPES[command[1]])
    if command[1] == 'HINCRBY' then check_counts({[command[2]] = {[command[3][1]] = 0}}) end
  end
  check_counts(counted)
  check_counts(rated)
end

-- A wake-up is only a hint. A user who may not use the channel must not end a script in its middle.
local function tell(channel, word) redis.pcall('PUBLISH', channel, word) end

local MOST = 4000 -- words of one call: more do not fit on the stack of Lua
local function call_with(command, name, words)
  if command == 'PUBLISH' then return tell(name, words[1]) end
  if #words <= MOST then return redis.call(command, name, unpack(words)) end
  for from = 1, #words, MOST do
    redis.call(command, name, unpack(words, from, math.min(from + MOST - 1, #words)))
  end
end

local function carry_out()
  for i = 1, #commands do
    local command = commands[i]
    call_with(command[1], command[2], command[3])
  end
  if last > 0 then call_with('ZADD', KEYS[2], numbered) end
  count()
  if trail > first_trail then redis.call('HSET', KEYS[1], 'trail', whole(trail)) end
end
