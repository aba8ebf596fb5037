-- Some events in the order of their arrival. ARGV: prefix, where to look, behind which arrival, how many.
local after, count = ARGV[3], tonumber(ARGV[4])
local numbers, entries = {}, {}
if ARGV[2] == 'dead' then
  numbers = redis.call('ZRANGEBYLEX', DEAD, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, count)
elseif ARGV[2] == 'running' then
  local found = redis.pcall('XPENDING', EVENTS, GROUP, after == '' and '-' or '(' .. id_of(after), '+', count)
  for index, item in ipairs(found.err and {} or found) do
    numbers[index] = number_of(item[1])
  end
else
  local found = redis.call('XRANGE', EVENTS, after == '' and '-' or '(' .. id_of(after), '+', 'COUNT', count)
  for index, item in ipairs(found) do
    numbers[index] = number_of(item[1])
    entries[index] = entry_of(item[2]) or false
  end
end
local rows = {}
for index, number in ipairs(numbers) do
  local entry = entries[index]
  if entry == nil then
    entry = entry_at(number)
  end
  local record = entry and read(claim_key(entry.key))
  if record and record.number == number then
    rows[#rows + 1] = { entry.key, entry.type, entry.received, record.value }
  end
end
return { rows, #numbers == count and numbers[count] or false }
