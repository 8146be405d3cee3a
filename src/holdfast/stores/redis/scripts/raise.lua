-- Lets the numbers of trail rows go on above a number. Fences are not higher than they are.
--
-- KEYS[1]  hash of numbers: `trail` is the highest number of a trail row
-- ARGV[1]  the number
local trail = tonumber(redis.call('HGET', KEYS[1], 'trail') or '0')
if trail < tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'trail', ARGV[1]) end
return 0
