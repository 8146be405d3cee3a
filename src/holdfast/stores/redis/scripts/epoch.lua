-- Begins a new epoch when the server is another one than before: it was restarted, or a replica took over, or the
-- server was a replica itself meanwhile. Writes may have been lost then, so fences must not go on from the numbers
-- that are stored. Scripts that write compare the second half of the id themselves: see `begins_epoch` in shared.lua.
-- It also looks whether the user may call the commands of all scripts: one that is refused in the middle of a script
-- would leave a run half written.
--
-- KEYS[1]  hash of numbers: `server` is the id of the server, `trail` the highest number of a trail row, `epoch` the
--          number that all fences of this epoch are above
-- KEYS[2]  sorted set of all trail rows
-- KEYS[3]  a key that never exists
-- ARGV[1]  id of the server: that of its process, a colon, that of its replication history
-- ARGV[2]  a random number that is added
-- ARGV[3]  version of the keys and fields, for a namespace that is new
-- The answer: the version that the namespace has; 1 when an epoch has begun; the commands that are refused.
local known = redis.call('HGET', KEYS[1], 'server')
local is_new = 0
if not known then
  redis.call('HSET', KEYS[1], 'server', ARGV[1], 'epoch', '0', 'schema', ARGV[3])
elseif known ~= ARGV[1] then
  local trail = tonumber(redis.call('HGET', KEYS[1], 'trail') or '0')
  -- An epoch that was begun may be lost itself. By the clock, the next one is above it all the same.
  local time = redis.call('TIME')
  local clock = time[1] * 1000000 + time[2]
  local epoch = string.format('%.0f', math.max(trail, clock) + tonumber(ARGV[2]))
  redis.call('HSET', KEYS[1], 'server', ARGV[1], 'epoch', epoch, 'trail', epoch)
  is_new = 1
end

-- None of these calls changes anything: the key is missing, or is of another type than the command wants.
local hash, set, absent = KEYS[1], KEYS[2], KEYS[3]
local harmless = {{'DEL', absent}, {'UNLINK', absent}, {'EXPIRE', absent, '1'}, {'SET', absent, '', 'XX'},
  {'HDEL', hash, ''}, {'HINCRBY', hash, 'server', '1'}, {'ZADD', hash, '0', ''}, {'ZINCRBY', hash, '1', ''},
  {'ZREM', absent, ''}, {'ZREMRANGEBYSCORE', absent, '1', '0'}}
if redis.call('EXISTS', set) == 1 then harmless[#harmless + 1] = {'HSET', set, '', ''} end
local refused = {}
for _, words in ipairs(harmless) do
  local answer = redis.pcall(unpack(words))
  local why = type(answer) == 'table' and answer.err or ''
  -- In the words of Redis and of Valkey.
  if string.find(why, 'user executing the script', 1, true) or string.find(why, 'ACL failure', 1, true) then
    refused[#refused + 1] = words[1]
  end
end
return {redis.call('HGET', KEYS[1], 'schema'), is_new, refused}
