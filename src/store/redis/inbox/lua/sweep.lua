-- Puts some events right, in the order of their arrival and then the dead ones, and says where to go on. ARGV: prefix, behind which
-- arrival, with a 'd' before it for the dead ones, and how many.
local is_dead, after, count = string.match(ARGV[2], '^(d?)(%d*)$')
count = tonumber(ARGV[3])
local last

local function sweep(number, entry)
  pcall(put_right, number, entry)
  last = number
end

if is_dead == 'd' then
  for _, number in ipairs(redis.call('ZRANGEBYLEX', DEAD, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, count)) do
    sweep(number)
  end
  return last and 'd' .. last or ''
end
for _, item in ipairs(redis.call('XRANGE', EVENTS, after == '' and '-' or '(' .. id_of(after), '+', 'COUNT', count)) do
  local entry = entry_of(item[1], item[2])
  if entry then
    sweep(number_of(item[1]), entry)
  else
    last = number_of(item[1])
  end
end
return last or 'd'
