-- Kept counts, for scripts that change runs: they call `moved` and `happened`, and at their end `count`.
-- KEYS[1] of these scripts is the hash of numbers. Other names follow from it: see counting.py.
-- Names of tenants and types come with `:` and `%` written as in keys.
local tag = string.sub(KEYS[1], 1, -8)
local counted, rated = {}, {}
-- The last run that a recount has passed; 'done' when it has passed all.
local cursor = redis.call('HGET', tag .. 'recount', 'cursor')

local function add(sums, key, field, number)
  local sum = sums[key]
  if not sum then
    sum = {}
    sums[key] = sum
  end
  sum[field] = (sum[field] or 0) + number
end

local function move(key, kind, before, after, number)
  if before ~= '' then add(counted, key, kind .. ':' .. before, -number) end
  if after ~= '' then add(counted, key, kind .. ':' .. after, number) end
end

-- Runs of one tenant and type have left one status and entered another. '': they are new, deleted or removed.
-- While a recount is under way, runs that it has passed move in its own counts, too.
local function moved(ids, tenant, kind, before, after)
  move(tag .. 'counts', kind, before, after, #ids)
  move(tag .. 'counts:' .. tenant, kind, before, after, #ids)
  if cursor then
    local passed = 0
    for i = 1, #ids do
      if cursor == 'done' or ids[i] <= cursor then passed = passed + 1 end
    end
    move(tag .. 'recounted', kind, before, after, passed)
    move(tag .. 'recounted:' .. tenant, kind, before, after, passed)
  end
end

-- Something has happened to runs, so many times, in the minute that begins at `minute`.
local function happened(tenant, kind, what, minute, number)
  local start = tonumber(minute)
  local rates = tag .. 'rates:' .. string.format('%.0f', start - start % 3600000000)
  for _, key in ipairs({tag .. 'counts', tag .. 'counts:' .. tenant}) do
    add(counted, key, kind .. ':+' .. what, number)
  end
  for _, key in ipairs({rates, rates .. ':' .. tenant}) do
    add(rated, key, minute .. ':' .. kind .. ':' .. what, number)
  end
end

local function count()
  for key, sum in pairs(counted) do
    for field, number in pairs(sum) do
      if number ~= 0 then redis.call('HINCRBY', key, field, number) end
    end
  end
  for key, sum in pairs(rated) do
    local is_new = false
    for field, number in pairs(sum) do
      is_new = redis.call('HINCRBY', key, field, number) == number or is_new
    end
    -- Two days, and some hours for clocks that differ: these are no runs.
    if is_new then redis.call('EXPIRE', key, 187200) end
  end
end
