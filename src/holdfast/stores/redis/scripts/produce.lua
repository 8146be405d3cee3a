-- Starts one run, for programs in any language that have only a client of Redis: the whole of a start by the
-- library, in one call.
--
--   EVAL <this text> 1 {holdfast}:numbers TYPE PARAMS [KEY] [TENANT] [PRIORITY] [DELAY_MS]
--
-- KEYS[1]  {PREFIX}:numbers, the hash of numbers of the namespace
-- TYPE     domain.action.vN
-- PARAMS   a JSON text. It is kept as it is given, and never decoded
-- KEY      idempotency key: the same key is the same run. '': none
-- TENANT   '': default
-- PRIORITY 0 to 999, lower goes first. '': 100
-- DELAY_MS milliseconds until it may be claimed. '': none
-- The answer: the id of the run; 1 when this call has started it, 0 when the key was there already.
-- An error begins with REFUSED or KEYREUSED. Then nothing was written.
--
-- Only one key is declared. All others have the same hash tag, so a cluster has them on the same node; and the
-- caller cannot know them: they follow from an id that is made here, and from sets that later versions may add.
-- A key that somebody has used for something else, or that is about to move to another node, is found before
-- the first write.
--
-- The digest by which a library recognises the same call is a SHA-256, which Redis does not have. The run has
-- the word `script` in its place: then type and params are compared themselves.
local GIVEN = ARGV
local function given(place, default)
  if GIVEN[place] == nil or GIVEN[place] == '' then return default end
  return GIVEN[place]
end
local function refused(text) return redis.error_reply('REFUSED ' .. text) end
-- A text of the caller, for a message: short, and of printable characters.
local function shown(text)
  return "'" .. string.gsub(string.sub(text, 1, 40), '[^\32-\126]', '?') .. (#text > 40 and '…' or '') .. "'"
end
local function part(text) return (string.gsub(string.gsub(text, '%%', '%%25'), ':', '%%3A')) end
--#include json.lua

if #KEYS ~= 1 or not string.find(KEYS[1], '^{[%w_.-]+}:numbers$') then
  return refused('give one key, {PREFIX}:numbers, with the prefix of the store: {holdfast}:numbers')
end
if #GIVEN < 2 or #GIVEN > 6 then
  return refused('give TYPE PARAMS [KEY] [TENANT] [PRIORITY] [DELAY_MS] after the key, and nothing else')
end
local kind, params, run_key = given(1, ''), given(2, ''), given(3)
local tenant, priority, delay = given(4, 'default'), given(5, '100'), given(6, '0')

local name = string.match(kind, '^([%w_.-]+)%.v[1-9]%d*$')
if #kind > 255 or not name or not string.find(name, '.', 1, true) or string.find('.' .. name .. '.', '..', 1, true) then
  return refused(shown(kind) .. ' is not a workflow type: write domain.action.vN with letters, digits, _ and -')
end
if string.sub(kind, 1, 9) == 'holdfast.' then
  return refused(shown(kind) .. ": types that begin with 'holdfast.' belong to the engine")
end
local fault = json_fault(params)
if fault then return refused('params ' .. fault) end
if string.find(params, '^%s*{%s*"holdfast%.sealed"') then
  return refused("params begin with the key 'holdfast.sealed', which marks encrypted values: rename the key")
end
for what, text in pairs({key = run_key, tenant = tenant}) do
  local _, characters = string.gsub(text, '[^\128-\191]', '')
  if characters > 255 or string.find(text, '[%z\31]') or not is_utf8(text) then
    return refused(what .. ' ' .. shown(text) .. ': 1 to 255 characters of UTF-8, without NUL or U+001F')
  end
end
if tenant == '*' or #tenant > 512 then
  return refused('tenant ' .. shown(tenant) .. ": a name of at most 512 bytes, other than '*'")
end
if not string.find(priority, '^%d%d?%d?$') then
  return refused('priority ' .. shown(priority) .. ': a whole number from 0 to 999, lower goes first')
end
-- Up to 30 years: then all times stay below 2^53, which Lua keeps exactly.
if not string.find(delay, '^%d+$') or #delay > 12 or tonumber(delay) >= 946080000000 then
  return refused('delay ' .. shown(delay) .. ': whole milliseconds, less than 30 years')
end

-- The words of shared.lua, which a caller of the library would give.
local root = string.sub(KEYS[1], 1, -8)
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
local ARGV = {string.format('%.0f', clock), string.format('%.0f', clock - clock % 3600000000)}
local KEYS = {KEYS[1], root .. 'trail', root .. 'news'}
--#include shared.lua
local tenant_part = part(tenant)

local numbers = redis.call('HMGET', KEYS[1], 'schema', 'event')
if not numbers[1] then
  return refused('no store has the prefix of ' .. shown(KEYS[1]) .. ': start a worker or `holdfast migrate` first')
elseif numbers[1] ~= '1' then
  return refused('the store has version ' .. shown(numbers[1]) .. ' of its keys, and this script is for 1')
end

-- The same key: the same run, if type and params are the same but for spaces between values.
local key_name = run_key and root .. 'key:' .. tenant_part .. ':' .. part(run_key)
local taken = run_key and redis.call('GET', key_name)
if taken then
  local id = string.sub(taken, 1, 36)
  local there = redis.call('HMGET', root .. 'run:' .. id, 'type', 'params')
  local texts = there[2] or 'null'
  if there[1] == kind and (texts == params or compact(texts) == compact(params)) then return {id, 0} end
  return redis.error_reply('KEYREUSED the key ' .. shown(run_key) .. ' belongs to run ' .. id .. ', which has '
    .. (there[1] == kind and 'other params' or 'another type'))
end

-- What the published definition says (producing.py). A type that nobody has published is code with defaults.
local known = redis.call('HGETALL', root .. 'begin:' .. kind)
local begins = {}
for i = 1, #known, 2 do begins[known[i]] = known[i + 1] end
if #known == 0 and redis.call('HEXISTS', root .. 'definitions', kind) == 1 then
  return refused(shown(kind) .. ' was published by a version without starts by script: start a worker of this one')
end
if begins.refused then
  return refused(shown(kind) .. ' ' .. begins.refused .. ': start it through the HTTP API, by `holdfast start` or '
    .. 'by the library')
end

-- A server that no library has met begins a new epoch: trail rows may have been lost.
begins_epoch()
local unique = redis.sha1hex(KEYS[1] .. ' ' .. whole(trail) .. ' ' .. now .. ' ' .. (history_of() or '') .. ' ' .. kind)

-- A UUID of version 7: its first 48 bits are the time in milliseconds. The rest follows from the number of the
-- next trail row, which is given once.
local stamp = string.format('%012x', math.floor(clock / 1000))
local id = string.sub(stamp, 1, 8) .. '-' .. string.sub(stamp, 9) .. '-7' .. string.sub(unique, 1, 3) .. '-'
  .. string.format('%x', 8 + tonumber(string.sub(unique, 4, 4), 16) % 4) .. string.sub(unique, 5, 7) .. '-' .. string.sub(unique, 8, 19)
local hash, steps_hash = root .. 'run:' .. id, root .. 'step:' .. id
if redis.call('EXISTS', hash) == 1 then return refused('the id of the new run is taken: call again') end

local run_at = whole(clock + tonumber(delay) * 1000)
local is_rare = begins.kind or begins.max_attempts or begins.timeout or begins.budget
local rare = is_rare and '1' or '0' -- in the field `writes`: see rows.py
local fields = {'status', 'pending', 'type', kind, 'tenant', tenant, 'params', params, 'rev', '1',
  'run_at', run_at, 'created_at', now, 'updated_at', now, 'digest', 'script', 'fence', whole(trail),
  'writes', '- ' .. (begins.seq or '0') .. ' ' .. whole(#params + tonumber(begins.bytes or '0')) .. ' 0 0 0 ' .. rare}
local function field(name, value)
  if value then
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
end
field('key', run_key)
if tonumber(priority) ~= 100 then field('priority', whole(tonumber(priority))) end
if numbers[2] and numbers[2] ~= '0' then field('watermark', numbers[2]) end
for _, one in ipairs({'kind', 'current', 'cursor', 'max_attempts', 'timeout_seconds', 'budget'}) do
  field(one, begins[one])
end
if begins.timeout then
  local timeout_at = whole(tonumber(run_at) + tonumber(begins.timeout))
  field('timeout_at', timeout_at)
  enter(root .. 'timeouts', timeout_at, id)
end
if begins.account then
  field('account', id)
  later('HSET', root .. 'account:' .. id, 'budget', begins.budget, 'spent', '0')
end
gather('HSET', hash, fields)
if run_key then later('SET', key_name, id .. ' script') end
if begins.current then
  gather('HSET', steps_hash, redis.call('HGETALL', root .. 'begin:' .. kind .. ':steps'))
end

enter(root .. 'trail:' .. id, row_of(id, 'created', begins.created or '{"type":"' .. kind .. '"}'))
local place = string.rep('0', 3 - #priority) .. priority .. ':01' .. string.rep('0', 18 - #run_at) .. run_at .. ':' .. id
enter(root .. 'queue:' .. kind, 0, place)
enter(root .. 'queue:' .. kind .. ':' .. tenant_part, 0, place)
enter(root .. 'lane:' .. kind .. ':' .. tenant_part, 0, place)
enter(root .. 'pending', run_at, id)
for _, set in ipairs({'status:pending', 'status:pending:' .. tenant_part, 'runs', 'tenant:' .. tenant_part, 'type:' .. kind}) do
  enter(root .. set, 0, id)
end
later('ZINCRBY', root .. 'lanes:' .. kind, 1, tenant)
later('ZINCRBY', root .. 'lanes:' .. kind .. ':' .. tenant_part, 1, '')
enter(root .. 'types', 0, kind)
enter(root .. 'tenants', 0, tenant)
moved({id}, tenant_part, kind, '', 'pending')
happened(tenant_part, kind, 'started', minute, 1)
check_all()
carry_out()
tell(KEYS[3], 'work')
return {id, 1}
