-- Says why a text is no JSON value that a run may have; nil: it may. The rules are those of the library
-- (holdfast/codec.py): at most 4 MiB, 64 levels, no NUL, no half of a surrogate pair, no number that no double
-- holds. The text is decoded only to see whether that works. Decoders of Redis take more than JSON, so the rest
-- of the rules is looked for in the text itself.
local VALUE_BYTES, LEVELS = 4194304, 64
local NOT_JSON = 'is not JSON'

local function is_utf8(text)
  if not string.find(text, '[\128-\255]') then return true end
  local more = '[\128-\191]'
  for _, form in ipairs({'[\194-\223]' .. more, '\224[\160-\191]' .. more, '[\225-\236\238\239]' .. more .. more,
    '\237[\128-\159]' .. more, '\240[\144-\191]' .. more .. more, '[\241-\243]' .. more .. more .. more,
    '\244[\128-\143]' .. more .. more}) do
    text = string.gsub(text, form, ' ')
  end
  return not string.find(text, '[\128-\255]')
end

-- Calls `outside` and `inside` with the parts of a JSON text that are outside of strings and inside of them.
local function each_part(text, outside, inside)
  local at = 1
  while true do
    local from, to = string.find(text, '"[^"\\]*', at)
    outside(string.sub(text, at, (from or 0) - 1))
    if not from then return end
    while string.sub(text, to + 1, to + 1) == '\\' do
      to = select(2, string.find(text, '^\\.[^"\\]*', to + 1)) or #text
    end
    inside(string.sub(text, from, to + 1))
    at = to + 2
  end
end

local function is_huge(value)
  if type(value) == 'number' then return math.abs(value) == math.huge end
  if type(value) == 'table' then
    for _, one in pairs(value) do
      if is_huge(one) then return true end
    end
  end
  return false
end

local function json_fault(text)
  if #text > VALUE_BYTES then return 'is ' .. #text .. ' bytes as JSON, the limit is ' .. VALUE_BYTES end
  if string.find(text, '%z') or not is_utf8(text) then return NOT_JSON .. ': it is not UTF-8, or has a NUL' end
  -- A decoder with settings of its own: those of `cjson` belong to all scripts of the server.
  local decoder = cjson.new()
  decoder.decode_max_depth(LEVELS)
  decoder.decode_invalid_numbers(false)
  local is_read, value = pcall(decoder.decode, text)
  if not is_read then
    local why = string.gsub(string.gsub(tostring(value), '^user_script:%d+: ', ''), '[^\32-\126]', '?')
    return NOT_JSON .. ': ' .. string.sub(why, 1, 200)
  end
  if is_huge(value) then return 'has a number that is too large' end
  local nul = '\\u0000'
  if string.find(text, nul, 1, true) and string.find(string.gsub(text, '\\\\', ''), nul, 1, true) then
    return 'has the character NUL'
  end
  -- A decoder takes `1.`, `-.5`, and line breaks in strings.
  local fault
  local function is_bare(part) -- a point without digits around it
    return string.find(part, '.', 1, true)
      and (string.find(part, '%.%D') or string.find(part, '%D%.') or string.sub(part, -1) == '.')
  end
  if string.find(text, '[\1-\31]') or is_bare(text) then
    each_part(text, function(outside)
      if is_bare(outside) then fault = NOT_JSON .. ': a number needs digits before and after its point' end
      if string.find(outside, '[\1-\8\11\12\14-\31]') then fault = NOT_JSON .. ': it has a control character' end
    end, function(inside)
      if string.find(inside, '[\1-\31]') then fault = NOT_JSON .. ': a string in it has a control character' end
    end)
  end
  return fault
end

-- Returns a JSON text without the spaces between its values.
local function compact(text)
  local parts = {}
  each_part(text, function(outside)
    parts[#parts + 1] = string.gsub(outside, '[ \t\n\r]+', '')
  end, function(inside)
    parts[#parts + 1] = inside
  end)
  return table.concat(parts)
end
