-- Some events in the order of their arrival. ARGV: prefix, where to look, behind which arrival, how many.
local place, after, count = ARGV[2], ARGV[3], tonumber(ARGV[4])
-- More of them are not sorted here; they are found in the stream.
local FEW = 1000

local function dead()
  return redis.call('ZRANGEBYLEX', DEAD, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, count)
end

local function running()
  local numbers = {}
  for _, number in ipairs(redis.call('ZRANGE', RUNNING, 0, -1)) do
    if number > after then
      numbers[#numbers + 1] = number
    end
  end
  table.sort(numbers)
  for index = #numbers, count + 1, -1 do
    numbers[index] = nil
  end
  return numbers
end

local numbers, entries, is_stream = {}, {}, false
if place == 'dead' then
  numbers = dead()
elseif place == 'running' and redis.call('ZCARD', RUNNING) <= FEW then
  numbers = running()
else
  is_stream = true
  local found = redis.call('XRANGE', EVENTS, after == '' and '-' or '(' .. id_of(after), '+', 'COUNT', count)
  for index, item in ipairs(found) do
    numbers[index], entries[index] = number_of(item[1]), entry_of(item[1], item[2]) or false
  end
end
local rows = {}
for index, number in ipairs(numbers) do
  local entry = is_stream and entries[index] or not is_stream and entry_at(number)
  local record = entry and read(claim_key(entry.key))
  if record and record.number == number then
    rows[#rows + 1] = { entry.key, entry.type, entry.received, record.value }
  elseif not is_stream then
    -- It is listed where it does not belong.
    pcall(put_right, number, entry or nil)
  end
end
return { rows, #numbers == count and numbers[count] or false }
