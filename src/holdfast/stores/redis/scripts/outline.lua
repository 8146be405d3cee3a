-- Returns steps of a large run without their values: number and bytes of each, in the order of the given keys.
-- 0 and 0: there is no such step. It ends early when it has read many bytes: the caller asks for the rest.
--
-- KEYS[1]  hash of the steps of a run: key -> JSON, which begins with the number
-- ARGV[1]  most bytes to read; at least one step is read
-- ARGV[2]  and further: keys of steps
local left, found = tonumber(ARGV[1]), {}
for i = 2, #ARGV do
  local text = redis.call('HGET', KEYS[1], ARGV[i])
  local seq = text and string.match(text, '^{"seq":(%d+)')
  found[#found + 1] = tonumber(seq or '0')
  found[#found + 1] = seq and #text or 0
  left = left - found[#found]
  if left < 0 then break end
end
return found
