-- Counts all runs again, a page at a time, and compares the kept counts with them.
--
-- The hash `recount` has a token, and the last run that was passed as `cursor`; `done` when all were. Scripts
-- that move a run which was passed move it in `recounted…`, too (counting.lua). So these counts are right at
-- every instant for the runs that were passed, whatever others do meanwhile.
--
-- KEYS[1]  hash of numbers: other names follow from it
-- ARGV[1]  what to do, ARGV[2] the token of the caller, ARGV[3] seconds until others may begin without its end
--   begin                        1, or 0 when another recount is under way
--   page, size                   count the next runs; 1 when all are counted
--   compare, '1' or '', tenants  compare the counts of these tenants, and correct them if '1' is given
--   whole, '1' or ''             compare the counts of all tenants together
--   end
-- The answer of a comparison has, for each difference: tenant, field, kept number, real number.
-- nil: the recount is another's by now.
local tag = string.sub(KEYS[1], 1, -8)
local recount, what, token = tag .. 'recount', ARGV[1], ARGV[2]

local owner = redis.call('HGET', recount, 'token')
if what == 'begin' and not owner then
  redis.call('HSET', recount, 'token', token, 'cursor', '')
elseif what == 'begin' then
  return owner == token and 1 or 0
elseif owner ~= token then
  return false
end
redis.call('EXPIRE', recount, ARGV[3])

local function part(text) return (string.gsub(string.gsub(text, '%%', '%%25'), ':', '%%3A')) end

local function count_page(size)
  local cursor = redis.call('HGET', recount, 'cursor')
  local from = cursor == '' and '-' or '(' .. cursor
  local ids = redis.call('ZRANGEBYLEX', tag .. 'runs', from, '+', 'LIMIT', 0, size)
  for _, id in ipairs(ids) do
    local run = redis.call('HMGET', tag .. 'run:' .. id, 'tenant', 'type', 'status', 'deleted_at')
    if run[3] and not run[4] then
      local field = part(run[2]) .. ':' .. run[3]
      redis.call('HINCRBY', tag .. 'recounted', field, 1)
      redis.call('HINCRBY', tag .. 'recounted:' .. part(run[1]), field, 1)
    end
  end
  redis.call('HSET', recount, 'cursor', #ids < size and 'done' or ids[#ids])
  return #ids < size and 1 or 0
end

local function numbers(key)
  local found, pairs_of = {}, redis.call('HGETALL', key)
  for i = 1, #pairs_of, 2 do
    if not string.find(pairs_of[i], ':+', 1, true) then found[pairs_of[i]] = tonumber(pairs_of[i + 1]) end
  end
  return found
end

local function compare(tenant, suffix, repairs, answer)
  local kept, real = numbers(tag .. 'counts' .. suffix), numbers(tag .. 'recounted' .. suffix)
  local fields = {}
  for field in pairs(kept) do fields[field] = true end
  for field in pairs(real) do fields[field] = true end
  for field in pairs(fields) do
    local is, should = kept[field] or 0, real[field] or 0
    if is ~= should then
      for _, value in ipairs({tenant, field, is, should}) do answer[#answer + 1] = value end
      if repairs then
        redis.call('HINCRBY', tag .. 'counts' .. suffix, field, should - is)
        if suffix ~= '' then redis.call('HINCRBY', tag .. 'counts', field, should - is) end
      end
    end
  end
end

local answer = {}
if what == 'begin' then
  return 1
elseif what == 'page' then
  return count_page(tonumber(ARGV[4]))
elseif what == 'compare' then
  for i = 5, #ARGV do compare(ARGV[i], ':' .. part(ARGV[i]), ARGV[4] == '1', answer) end
elseif what == 'whole' then
  compare('', '', ARGV[4] == '1', answer)
else
  redis.call('DEL', recount)
end
return answer
