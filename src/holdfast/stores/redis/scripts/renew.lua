-- Extends leases of one worker, many at once.
--
-- KEYS     as in shared.lua; [4] leased runs by the end of their lease; [5] leased runs of this worker, the
--          score is the fence; then hash and trail of each run
-- ARGV[3]  microseconds of the lease; the worker; the data of a heartbeat row; leases, each: fence as text,
--   number of the last known step or '', started_at or '', true for a heartbeat row, true when it has survived a
--   whole lease, its progress or false
-- The answer: the clock; for each lease '' lost | 'c' lost, because it was cancelled | '-' renewed | 'p' renewed,
-- a pause is asked for; with 'n' behind it when waits were settled after the known step; then how many leased
-- runs the worker has, and how many of them were renewed.
--#include shared.lua
local lease, worker, heartbeat, leases = unpack(cmsgpack.unpack(ARGV[3]))
begins_epoch() -- the rows of this script must not have numbers that were given before
local till = whole(instant + lease)
local found, said, tills, mine = {}, {}, {}, {}
for i = 1, #leases do
  local one, hash = leases[i], KEYS[2 * i + 4]
  local fence, known, started_at = one[1], one[2], one[3]
  local r = redis.call('HMGET', hash, 'status', 'fence', 'lease_until', 'rev', 'started_fence', 'attempts', 'crashes',
    'survived', 'pause_asked_by', 'waits_seq', 'started_at', 'leased_by')
  if r[1] == 'leased' and r[2] == fence and tonumber(r[3]) >= instant then
    found[i] = r
    said[i] = (r[9] and 'p' or '-') .. (known ~= '' and tonumber(r[10] or '0') > known and 'n' or '')
    tills[#tills + 1] = till tills[#tills + 1] = id_of(hash)
    if r[12] == worker then mine[hash] = true end
    if one[4] or started_at ~= '' then check(KEYS[2 * i + 5], 'zset') end
  else
    said[i] = r[1] == 'cancelled' and 'c' or ''
  end
end
local held, renewed = redis.call('ZCARD', KEYS[5]), 0
for _ in pairs(mine) do renewed = renewed + 1 end
if #tills > 0 then gather('ZADD', KEYS[4], tills) end
check_all()

-- From here on there are only writes.
for i = 1, #leases do
  local r = found[i]
  if r then
    local one, hash, rows = leases[i], KEYS[2 * i + 4], KEYS[2 * i + 5]
    local put, id = {'lease_until', till, 'rev', r[4] + 1}, id_of(hash)
    if one[3] ~= '' and r[5] ~= one[1] then
      redis.call('ZADD', rows, row_of(id, 'started', '{"at":' .. one[3] .. '}'))
      put[#put + 1] = 'started_fence' put[#put + 1] = one[1]
      put[#put + 1] = 'updated_at' put[#put + 1] = now
      if not r[11] then put[#put + 1] = 'started_at' put[#put + 1] = one[3] end
    end
    if one[4] then
      redis.call('ZADD', rows, row_of(id, 'heartbeat', heartbeat))
      put[#put + 1] = 'updated_at' put[#put + 1] = now
    end
    -- The crashes of a run that has executed for a whole lease are forgiven, once since its last progress.
    if one[5] and r[7] and not r[8] then
      put[#put + 1] = 'attempts' put[#put + 1] = math.max(1, tonumber(r[6] or '0') - tonumber(r[7]))
      put[#put + 1] = 'survived' put[#put + 1] = '1'
      redis.call('HDEL', hash, 'crashes')
    end
    if one[6] then put[#put + 1] = 'progress' put[#put + 1] = one[6] end
    redis.call('HSET', hash, unpack(put))
  end
end
carry_out()
return {now, said, held, renewed}
