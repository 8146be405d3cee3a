-- Plain writes of holders, many at once: checkpoints of new steps, and completes.
--
-- KEYS     as in shared.lua; [4] leased runs by the end of their lease; [5] runs that have ended, by time;
--          [6] runs with work that is owed; then hash, steps and trail of the run of each item; others by place
-- ARGV[3]  kinds, items
--   kind: [1] type [2] tenant [3] tenant as in keys; places of: [4], [5] the status sets `leased` and `succeeded`
--     [6], [7] those of the tenant [8], [9] the leased runs of the type and of the tenant
--   item: [1] the field `writes` as the holder knows it [2] the same when the item is applied
--     [3] microseconds of the lease [4] false, or what few items have:
--       [1] fence [2] started_at or '' [3] trail rows: type, data, type, data, …
--       [4] number of the last log row of the code, or 0 [5] true: forget earlier tries
--       [6] false: a checkpoint; or a complete: [1] kind [2] result [3] its field `commit` [4] what it owes or ''
--         [5] places of further sets that the run leaves [6] 1 when it may have fields that few runs have
--     then for each step: key; its JSON without finished_at and the last brace; data of its trail row
-- The answer: the clock; 1 for each item that was applied, and 0 for each that the machine has to look at.
--
-- `writes` begins with a fence only while the run is leased, is code, and nobody has asked for a pause. It changes
-- with each of these writes. So who knows the whole text is the holder, and knows all that was written (rows.py).
-- A plain checkpoint does not grow `rev`: a busy holder must not starve others that decide by the row.
--#include shared.lua
local kinds, items = unpack(cmsgpack.unpack(ARGV[3]))
if begins_epoch() then -- the machine has to look whether writes of these holders are lost
  local none = {}
  for i = 1, #items do none[i] = 0 end
  return {now, none}
end

-- By item: what was read of a run whose item is applied; the end of the extended lease; the answer.
local found, tills, said = {}, {}, {}
local taken = {} -- by kind: the runs that are completed

-- Reads what few items need. Returns nil when the machine has to look at the item.
local function read_more(hash, extra)
  local ends = extra[6]
  if ends and ends[6] == 1 then
    local odd = redis.call('HMGET', hash, 'open', 'owes', 'ttl_seconds')
    if odd[1] or odd[2] or odd[3] then return nil end
  end
  local fields = redis.call('HMGET', hash, 'rev', 'started_fence', 'started_at')
  if extra[4] > 0 then fields[4] = redis.call('HGET', hash, 'logs') end
  return fields
end

local function note_end(hash, ends)
  local id, ids = id_of(hash), taken[ends[1]]
  if not ids then
    ids = {}
    taken[ends[1]] = ids
  end
  ids[#ids + 1] = id
  for _, set in ipairs(ends[5]) do leave(KEYS[set], id) end
  if ends[4] ~= '' then enter(KEYS[6], '0', id) end
end

for i = 1, #items do
  local item, place, is_applied = items[i], 3 * i + 4, false
  local hash, extra = KEYS[place], item[4]
  local r = redis.call('HMGET', hash, 'writes', 'lease_until')
  if r[1] == item[1] then
    local left = tonumber(r[2] or '0') - instant
    is_applied = left >= 0
    for j = 5, #item, 3 do
      if redis.call('HEXISTS', KEYS[place + 1], item[j]) == 1 then is_applied = false end
    end
    if is_applied then
      local is_end = extra and extra[6]
      if not is_end and left * 3 < item[3] * 2 then tills[i] = whole(instant + item[3]) end
      local fields = {}
      if extra then
        fields = read_more(hash, extra)
      elseif tills[i] then
        fields[1] = redis.call('HGET', hash, 'rev')
      end
      is_applied = fields ~= nil
      found[i] = fields
      if is_applied then check(KEYS[place + 2], 'zset') end
      if is_applied and is_end then note_end(hash, extra[6]) end
    end
  end
  said[i] = is_applied and 1 or 0
end

local is_news = false
for number, ids in pairs(taken) do
  local kind, succeeded, ended = kinds[number], {}, {}
  is_news = true
  for i = 1, #ids do
    local id = ids[i]
    succeeded[2 * i - 1], succeeded[2 * i] = '0', id
    ended[2 * i - 1], ended[2 * i] = now, id
  end
  gather('ZREM', KEYS[4], ids)
  for _, place in ipairs({4, 6, 8, 9}) do gather('ZREM', KEYS[kind[place]], ids) end
  gather('ZADD', KEYS[kind[5]], succeeded)
  gather('ZADD', KEYS[kind[7]], succeeded)
  gather('ZADD', KEYS[5], ended)
  moved(ids, kind[3], kind[1], 'leased', 'succeeded')
  happened(kind[3], kind[1], 'succeeded', minute, #ids)
end
check(KEYS[4], 'zset')
check_all()

-- From here on there are only writes.
local function add(list, one, two)
  local count = #list
  list[count + 1], list[count + 2] = one, two
end

-- Writes the fields and rows that few items have, before those of the steps. The rows of the end come behind.
local function write_more(hash, id, extra, fields, rows)
  local put, ends = {}, extra[6]
  if extra[2] ~= '' and fields[2] ~= extra[1] then
    add(rows, row_of(id, 'started', '{"at":' .. extra[2] .. '}'))
    add(put, 'started_fence', extra[1])
    if not fields[3] then add(put, 'started_at', extra[2]) end
  end
  local notes = extra[3]
  for j = 1, #notes, 2 do add(rows, row_of(id, notes[j], notes[j + 1])) end
  if extra[5] then
    add(put, 'attempts', '1')
    redis.call('HDEL', hash, 'crashes', 'survived')
  end
  if #put > 0 or ends then add(put, 'rev', usual(fields[1] + 1)) end
  if extra[4] > tonumber(fields[4] or '0') then add(put, 'logs', extra[4]) end
  if ends then
    if ends[4] ~= '' then add(put, 'owes', ends[4]) end
    redis.call('HDEL', hash, 'leased_by', 'lease_until')
    if ends[6] == 1 then redis.call('HDEL', hash, 'error', 'last_error') end
    redis.call('HSET', hash, 'status', 'succeeded', 'result', ends[2], 'finished_at', now, 'commit', ends[3],
      unpack(put))
  elseif #put > 0 then
    redis.call('HSET', hash, unpack(put))
  end
end

local finished = ',"finished_at":' .. now .. '}'
for i = 1, #items do
  local fields = found[i]
  if fields then
    local item, place, rows, steps = items[i], 3 * i + 4, {}, {}
    local hash, extra, till, writes = KEYS[place], item[4], tills[i], item[2]
    local id = id_of(hash)
    if extra then
      write_more(hash, id, extra, fields, rows)
      if extra[6] then writes = '-' .. string.match(writes, ' .*') end
    end
    for j = 5, #item, 3 do
      add(steps, item[j], item[j + 1] .. finished)
      add(rows, row_of(id, 'step_succeeded', item[j + 2]))
    end
    if #steps > 0 then
      redis.call('HSET', KEYS[place + 1], unpack(steps))
      redis.call('HSET', hash, 'updated_at', now, 'writes', writes, 'cursor', item[#item - 2])
    else
      redis.call('HSET', hash, 'updated_at', now, 'writes', writes)
    end
    if till then
      redis.call('HSET', hash, 'lease_until', till, 'rev', usual(fields[1] + 1))
      redis.call('ZADD', KEYS[4], till, id)
    end
    if extra and extra[6] then add(rows, row_of(id, 'succeeded', '{}')) end
    call_with('ZADD', KEYS[place + 2], rows)
  end
end
carry_out()
if is_news then tell(KEYS[3], 'work') end
return {now, said}
