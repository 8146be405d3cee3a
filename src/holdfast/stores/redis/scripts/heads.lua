-- Returns the first run of each priority of a queue: there are at most 1000 priorities.
--
-- KEYS[1]  sorted set of a queue: members "<priority, three digits>:<time>:<id>"
local found, after = {}, '-'
while true do
  local page = redis.call('ZRANGEBYLEX', KEYS[1], after, '+', 'LIMIT', 0, 1)
  if not page[1] then return found end
  found[#found + 1] = page[1]
  after = '[' .. string.sub(page[1], 1, 3) .. ';'
end
