-- Applies the changes of one verb, if everything that it has read is still as it was.
--
-- KEYS     as in shared.lua; others as the guards and the operations name them, by their place
-- ARGV[3]  groups, each: its guards, its operations
--   guard: command, place of its key, its other words, the answer
--   operation:
--     C  place of its key, command, its other words: a plain command
--     +  place of a sorted set, scores and members;  -  place of a sorted set, members: entries of an index
--     L  place of a sorted set, counter, text, place of another or 0, its text: a row with the next number.
--        The member is "<number> <text>"
--     N  place of a hash or 0, counter, field, member, places of sorted sets: the next number, as a field of the
--        hash and as the score of the member
--     W  place of a run's hash, its field `writes` as it was read, the new one. If it is another one by now, it keeps
--        its numbers: a plain checkpoint has come in between (hold.lua)
--     F  place of a run's hash, a number: its fence is the highest number of a trail row before, plus this one
--     M  0, id of a run, tenant, type, status before, status after: the run moves in the counts
--     H  0, tenant, type, happening, minute as text, number: the happening is counted
--
-- A group whose guards do not hold is left out; the answer: the clock, then 1 or 0 for each group. On a server that
-- the namespace does not know yet none of them holds: what was read may be lost.
--#include shared.lua
local groups = cmsgpack.unpack(ARGV[3])
local function text(answer)
  if answer == false or answer == nil then return '' end
  if type(answer) == 'number' then return whole(answer) end
  if type(answer) == 'table' then return table.concat(answer, ',') end
  return answer
end

local said = {now}
if begins_epoch() then
  for i = 1, #groups do said[i + 1] = 0 end
  return said
end
for i = 1, #groups do
  local guards = groups[i][1]
  said[i + 1] = 1
  for j = 1, #guards do
    local guard = guards[j]
    if text(redis.call(guard[1], KEYS[guard[2]], unpack(guard[3]))) ~= guard[4] then
      said[i + 1] = 0
      break
    end
  end
end

-- Numbers that this script gives, other than those of the trail of all runs.
local highest = {}
local function next_of(counter)
  if counter == 'trail' then
    trail = trail + 1
    return whole(trail)
  end
  highest[counter] = (highest[counter] or tonumber(redis.call('HGET', KEYS[1], counter) or '0')) + 1
  return whole(highest[counter])
end

-- Adds words to those of the same set, of all groups.
local function join(known, command, set, words)
  local all = known[set]
  if not all then
    known[set] = words
    gather(command, set, words)
    return
  end
  for i = 1, #words do all[#all + 1] = words[i] end
end

local OPERATIONS = {
  C = function(key, one) gather(one[3], key, one[4]) end,
  ['+'] = function(key, one) join(entered, 'ZADD', key, one[3]) end,
  ['-'] = function(key, one) join(left, 'ZREM', key, one[3]) end,
  L = function(key, one)
    local seq = next_of(one[3])
    enter(key, seq, seq .. ' ' .. one[4])
    if one[5] > 0 then enter(KEYS[one[5]], seq, seq .. ' ' .. one[6]) end
  end,
  N = function(key, one)
    local seq = next_of(one[3])
    if key then later('HSET', key, one[4], seq) end
    for i = 1, #one[6] do later('ZADD', KEYS[one[6][i]], seq, one[5]) end
  end,
  W = function(key, one)
    local is, text = redis.call('HGET', key, 'writes'), one[4]
    local numbers, rare = string.match(is ~= one[3] and is or '', '^%S+( .* )(%S+)$')
    if numbers then
      local who, is_rare = string.match(text, '^(%S+) .* (%S+)$')
      text = who .. numbers .. math.max(rare, is_rare)
    end
    later('HSET', key, 'writes', text)
  end,
  F = function(key, one) later('HSET', key, 'fence', whole(first_trail + one[3])) end,
  M = function(_, one) moved({one[3]}, one[4], one[5], one[6], one[7]) end,
  H = function(_, one) happened(one[3], one[4], one[5], one[6], one[7]) end,
}

for i = 1, #groups do
  if said[i + 1] == 1 then
    local operations = groups[i][2]
    for j = 1, #operations do
      local one = operations[j]
      OPERATIONS[one[1]](KEYS[one[2]], one)
    end
  end
end
for counter, value in pairs(highest) do later('HSET', KEYS[1], counter, whole(value)) end
check_all()
carry_out()
return said
