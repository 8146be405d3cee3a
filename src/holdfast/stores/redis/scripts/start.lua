-- Starts runs that need no decision: code, or a plan that begins with a task; without parent and budget.
--
-- KEYS     as in shared.lua; [4] open runs by their timeout; [5], [6] types and tenants that have a run;
--          then hash and trail of each run; others by their place
-- ARGV[3]  epoch and revision of the published definitions that the caller knows; kinds; runs
--   kind: [1] type [2] tenant [3] tenant as in keys; places of: [4] queue of the type [5] queue of type and tenant
--     [6] lane without a limit key [7] tenants of the queue [8] lanes of the tenant [9] all pending runs by time
--     [10] status set [11] status set of the tenant [12] all runs [13] runs of the tenant [14] runs of the type
--   run: [1] kind [2] priority, three digits [3] data of the trail row `created`
--     [4] fields and values of the hash [5] false, or what few runs have:
--       [1] place of its key or 0 [2] the text of the key: "<id> <digest>"
--       [3] place of the set of open runs of its API key or 0 [4] the most that it may hold
--       [5] '' due now | 'd' later by [6] these microseconds | 'a' at [6] this instant, [7] its place in the queue
--       [8] microseconds of its timeout or ''
--       [9] place of the queue of its lane or 0 [10] end of the lane's name
--       [11] places of further sets that hold the run for good
--       [12] place of its steps or 0 [13] keys and rows of steps
-- The answer: the clock; then for each run 1: started; 0: the machine has to decide; else the text of the key
-- that exists. Or the clock and 'stale': the caller knows other definitions.
--#include shared.lua
local revision, kinds, runs = unpack(cmsgpack.unpack(ARGV[3]))
local known = redis.call('HMGET', KEYS[1], 'epoch', 'published', 'event')
if (known[1] or '0') .. ':' .. (known[2] or '0') ~= revision or begins_epoch() then return {now, 'stale'} end

local said, opened = {now}, {}
for i = 1, #runs do
  local hash, options = KEYS[2 * i + 5], runs[i][5]
  local there = options and options[1] > 0 and redis.call('GET', KEYS[options[1]])
  if there then
    said[i + 1] = there
  elseif redis.call('EXISTS', hash) == 1 then
    said[i + 1] = 0
  else
    said[i + 1] = 1
    if options and options[3] > 0 then
      local open = options[3]
      local count = opened[open] or redis.call('ZCARD', KEYS[open])
      if count >= options[4] then said[i + 1] = 0 else opened[open] = count + 1 end
    end
  end
end

local function eighteen(value) return string.rep('0', 18 - #value) .. value end
local run_ats, timeouts = {}, {}

-- Returns the time and the place of a run in its queue. What few runs have is gathered.
local function options_of(i, id, kind, options)
  local run_at, place = now, '01' .. eighteen(now)
  if options[5] == 'a' then
    run_at, place = options[6], options[7]
  elseif options[5] == 'd' then
    run_at = whole(instant + options[6])
    place = '01' .. eighteen(run_at)
  end
  if options[8] ~= '' then
    timeouts[i] = whole(math.max(instant, tonumber(run_at)) + options[8])
    enter(KEYS[4], timeouts[i], id)
  end
  if options[3] > 0 then enter(KEYS[options[3]], '0', id) end
  for _, set in ipairs(options[11]) do enter(KEYS[set], '0', id) end
  if options[12] > 0 then check(KEYS[options[12]], 'hash') end
  return run_at, place
end

local begun = {} -- by kind: its started runs, and the words by which they enter sets
local here = '01' .. eighteen(now)
for i = 1, #runs do
  if said[i + 1] == 1 then
    local run, hash = runs[i], KEYS[2 * i + 5]
    local options, id, kind = run[5], id_of(hash), kinds[run[1]]
    check(KEYS[2 * i + 6], 'zset')
    local started = begun[run[1]]
    if not started then
      started = {ids = {}, zeros = {}, places = {}, free = {}, times = {}, ends = {}}
      begun[run[1]] = started
    end
    local run_at, place = now, here
    if options then run_at, place = options_of(i, id, kind, options) end
    run_ats[i] = run_at
    local count = #started.ids
    local at, member = 2 * count + 1, run[2] .. ':' .. place .. ':' .. id
    started.ids[count + 1] = id
    started.zeros[at], started.zeros[at + 1] = '0', id
    started.places[at], started.places[at + 1] = '0', member
    started.times[at], started.times[at + 1] = run_at, id
    local lane = ''
    if options and options[9] > 0 then
      lane = options[10]
      enter(KEYS[options[9]], '0', member)
    else
      local free = started.free
      at = #free
      free[at + 1], free[at + 2] = '0', member
    end
    started.ends[lane] = (started.ends[lane] or 0) + 1
  end
end

local is_news = false
for number, started in pairs(begun) do
  local kind = kinds[number]
  is_news = true
  gather('ZADD', KEYS[kind[4]], started.places)
  gather('ZADD', KEYS[kind[5]], started.places)
  if #started.free > 0 then gather('ZADD', KEYS[kind[6]], started.free) end
  gather('ZADD', KEYS[kind[9]], started.times)
  for set = 10, 14 do gather('ZADD', KEYS[kind[set]], started.zeros) end
  later('ZINCRBY', KEYS[kind[7]], #started.ids, kind[2])
  for lane, count in pairs(started.ends) do later('ZINCRBY', KEYS[kind[8]], count, lane) end
  enter(KEYS[5], '0', kind[1])
  enter(KEYS[6], '0', kind[2])
  moved(started.ids, kind[3], kind[1], '', 'pending')
  happened(kind[3], kind[1], 'started', minute, #started.ids)
end
check_all()

-- From here on there are only writes.
-- No fence is below one that was given before: the id may be that of a purged run, whose holder stays out.
local fence, watermark = whole(trail), known[3] or '0'
for i = 1, #runs do
  if said[i + 1] == 1 then
    local run, hash, options = runs[i], KEYS[2 * i + 5], runs[i][5]
    redis.call('HSET', hash, 'status', 'pending', 'fence', fence, 'run_at', run_ats[i], 'created_at', now, 'updated_at',
      now, unpack(run[4]))
    if timeouts[i] then redis.call('HSET', hash, 'timeout_at', timeouts[i]) end
    if watermark ~= '0' then redis.call('HSET', hash, 'watermark', watermark) end
    if options and options[1] > 0 then redis.call('SET', KEYS[options[1]], options[2]) end
    if options and options[12] > 0 then redis.call('HSET', KEYS[options[12]], unpack(options[13])) end
    redis.call('ZADD', KEYS[2 * i + 6], row_of(id_of(hash), 'created', run[3]))
  end
end
carry_out()
if is_news then tell(KEYS[3], 'work') end
return said
