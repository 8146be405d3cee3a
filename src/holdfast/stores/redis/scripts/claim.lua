-- Takes due runs for a worker, in the order of priority, time and id, where no limit applies.
--
-- KEYS     as in shared.lua; [4] leased runs by the end of their lease; [5] leased runs of this worker;
--          [6] all pending runs by time; then the queues
-- ARGV[3]  revision of limits and registry that the caller knows; the hash tag; the worker, and again as JSON;
--   microseconds of the lease; whether keepers are told of so short a lease; most runs; most bytes of values;
--   numbers: how many runs with so many crashes are still taken
-- The answer: the clock, the end of the leases, then for each run: [1] id [2] fence [3] attempt [4] its field `writes`
-- [5] the fields of FIELDS [6] 1 when its values follow, else 0 [7] params and labels [8] steps as keys and rows
-- [9] the fields of RARE, or nothing [10] budget and spent of its account.
-- Or the clock and 'stale'; or the clock and 'cut': none was found within LOOKS and READS, but there may be some.
--
-- The names of a run's keys are made of its id, and those of its sets of its type, tenant and limit key, all
-- under the tag of KEYS: only a claim does not know them before.
--#include shared.lua
local FIELDS = {'status', 'writes', 'fence', 'type', 'tenant', 'attempts', 'rev', 'created_at', 'run_at'}
-- Fields that most runs do not have: they are read if `writes` says that one may be there (rows.py).
local RARE = {'deleted_at', 'kind', 'crashes', 'max_attempts', 'timeout_at', 'parent', 'cost', 'budget', 'account', 'trace',
  'logs', 'limit_key', 'ttl_seconds', 'owes', 'parent_step', 'api_key', 'pause_asked_by', 'survived', 'open'}
-- Members of a queue that are read at once; runs that are looked at in all; reads of queues in all.
local PAGE, LOOKS, READS = 100, 300, 1000

local revision, root, worker, worker_json, lease, announces, most, bytes, allowed = unpack(cmsgpack.unpack(ARGV[3]))
local numbers = redis.call('HMGET', KEYS[1], 'epoch', 'limits')
local epoch = numbers[1] or '0'
if epoch .. ':' .. (numbers[2] or '0') ~= revision then return {now, 'stale'} end
local due = '01' .. string.rep('0', 18 - #now) .. now

local function part(text) return (string.gsub(string.gsub(text, '%%', '%%25'), ':', '%%3A')) end

local reads = 0
-- Returns a function that gives the due members of a queue, in order. Members that are not due are skipped, up
-- to the next priority.
local function members(queue, size)
  local page, index, after, is_last, wanted = {}, 0, '-', false, size
  return function()
    while true do
      index = index + 1
      local member = page[index]
      if member and string.sub(member, 5, 24) <= due then return member end
      if member then
        -- There may be many priorities without a due run: one member of each is enough.
        after, is_last, wanted = '[' .. string.sub(member, 1, 3) .. ';', false, 1
      elseif is_last then
        return nil
      elseif index > 1 then
        after, wanted = '(' .. page[index - 1], size
      end
      if reads >= READS then return nil end
      reads = reads + 1
      page = redis.call('ZRANGEBYLEX', queue, after, '+', 'LIMIT', 0, wanted)
      index, is_last = 0, #page < wanted
    end
  end
end

local queues, heads = {}, {}
local size = math.min(PAGE, math.max(8, math.ceil(most / math.max(1, #KEYS - 6))))
for i = 7, #KEYS do
  queues[#queues + 1] = members(KEYS[i], size)
  heads[#heads + 1] = queues[#queues]() or false
end
local function next_member()
  local first
  for i, head in ipairs(heads) do
    if head and (not first or head < heads[first]) then first = i end
  end
  if not first then return nil end
  local member = heads[first]
  heads[first] = queues[first]() or false
  return member
end

local crashed = {}
local function is_allowed(crashes)
  if #allowed == 0 then return true end
  for k = 1, crashes do
    local taken = 0
    for _, other in ipairs(crashed) do if other >= k then taken = taken + 1 end end
    if taken >= allowed[math.min(k, #allowed)] then return false end
  end
  return true
end

-- The runs that are taken, as they are answered; and by run: its place in the queue and its hash.
local taken, members_of, hashes, looks = {}, {}, {}, 0
while #taken < most and looks < LOOKS do
  local member = next_member()
  if not member then break end
  looks = looks + 1
  local id = string.sub(member, 26)
  local hash = root .. ':run:' .. id
  local values = redis.call('HMGET', hash, unpack(FIELDS))
  if values[1] == 'pending' and values[2] then
    local odd = string.sub(values[2], -1) == '1' and redis.call('HMGET', hash, unpack(RARE)) or {}
    local crashes = tonumber(odd[3] or '0')
    if not odd[1] and is_allowed(crashes) then
      local count = #taken + 1
      taken[count] = {id, '', '', '', values, 0, {}, {}, odd, {}}
      members_of[count], hashes[count], crashed[count] = member, hash, crashes
    end
  end
end

if #taken == 0 and (looks == LOOKS or reads >= READS) then return {now, 'cut'} end
-- A server that has lost writes may have lost limits, too: the caller reads them again.
if #taken > 0 and begins_epoch() then return {now, 'stale'} end
epoch = tonumber(epoch)

local till, trails = whole(instant + lease), {}
for i = 1, #taken do
  local run, hash = taken[i], hashes[i]
  local id, values, odd = run[1], run[5], run[9]
  local numbers, seq, size = string.match(values[2], '^%S+( (%d+) (%d+) .*)$')
  local is_plan = odd[2] == 'plan'
  run[2] = usual(math.max(tonumber(values[3]), epoch) + 1)
  run[3] = usual(tonumber(values[6] or '0') + 1)
  run[4] = (is_plan and '-' or run[2]) .. numbers
  size = tonumber(size)
  if size <= bytes then
    bytes, run[6] = bytes - size, 1
    run[7] = redis.call('HMGET', hash, 'params', 'labels')
    if is_plan or seq ~= '0' then run[8] = redis.call('HGETALL', root .. ':step:' .. id) end
  end
  if odd[9] then run[10] = redis.call('HMGET', root .. ':account:' .. odd[9], 'budget', 'spent') end
  trails[i] = root .. ':trail:' .. id
  check(trails[i], 'zset')
end

-- The runs of one type and tenant, and the words by which they leave sets and enter others.
local kinds = {}
local function kind_of(type, tenant)
  local name = type .. '\31' .. tenant
  local kind = kinds[name]
  if not kind then
    kind = {type = part(type), tenant = part(tenant), name = tenant, ids = {}, members = {}, free = {}, zeros = {},
      lanes = {}}
    kinds[name] = kind
  end
  return kind
end

local tills, fences = {}, {}
for i = 1, #taken do
  local run, member = taken[i], members_of[i]
  local id, values, limit_key = run[1], run[5], run[9][12]
  local kind = kind_of(values[4], values[5])
  local count = #kind.ids + 1
  kind.ids[count], kind.members[count] = id, member
  kind.zeros[2 * count - 1], kind.zeros[2 * count] = '0', id
  tills[2 * i - 1], tills[2 * i] = till, id
  fences[2 * i - 1], fences[2 * i] = run[2], id
  local lane = ''
  if limit_key then
    lane = ':' .. part(limit_key)
    leave(root .. ':lane:' .. kind.type .. ':' .. kind.tenant .. lane, member)
    enter(root .. ':leased:key' .. lane, '0', id)
  else
    kind.free[#kind.free + 1] = member
  end
  kind.lanes[lane] = (kind.lanes[lane] or 0) + 1
end
for _, kind in pairs(kinds) do
  local type, tenant = kind.type, kind.tenant
  gather('ZREM', root .. ':queue:' .. type, kind.members)
  gather('ZREM', root .. ':queue:' .. type .. ':' .. tenant, kind.members)
  if #kind.free > 0 then gather('ZREM', root .. ':lane:' .. type .. ':' .. tenant, kind.free) end
  gather('ZREM', KEYS[6], kind.ids)
  gather('ZREM', root .. ':status:pending', kind.ids)
  gather('ZREM', root .. ':status:pending:' .. tenant, kind.ids)
  gather('ZADD', root .. ':status:leased', kind.zeros)
  gather('ZADD', root .. ':status:leased:' .. tenant, kind.zeros)
  gather('ZADD', root .. ':leased:type:' .. type, kind.zeros)
  gather('ZADD', root .. ':leased:tenant:' .. tenant, kind.zeros)
  local tenants, lanes = root .. ':lanes:' .. type, root .. ':lanes:' .. type .. ':' .. tenant
  later('ZINCRBY', tenants, -#kind.ids, kind.name)
  later('ZREMRANGEBYSCORE', tenants, '-inf', 0)
  for lane, runs in pairs(kind.lanes) do later('ZINCRBY', lanes, -runs, lane) end
  later('ZREMRANGEBYSCORE', lanes, '-inf', 0)
  moved(kind.ids, tenant, type, 'pending', 'leased')
end
if #taken > 0 then
  gather('ZADD', KEYS[4], tills)
  gather('ZADD', KEYS[5], fences)
end
check_all()

-- From here on there are only writes.
local said = {now, till}
for i = 1, #taken do
  local run, hash = taken[i], hashes[i]
  local fence, attempt = run[2], run[3]
  said[i + 2] = run
  redis.call('HSET', hash, 'status', 'leased', 'writes', run[4], 'fence', fence, 'lease_until', till, 'leased_by', worker,
    'attempts', attempt, 'called_at', now, 'updated_at', now, 'rev', usual(run[5][7] + 1))
  if run[9][17] then redis.call('HDEL', hash, 'pause_asked_by') end
  redis.call('ZADD', trails[i], row_of(run[1], 'leased',
    '{"worker":' .. worker_json .. ',"attempt":' .. attempt .. ',"fence":' .. fence .. '}'))
end
carry_out()
if announces and #taken > 0 then tell(KEYS[3], 'work') end
return said
