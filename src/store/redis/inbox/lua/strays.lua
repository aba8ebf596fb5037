-- Looks through some of the events that run for those of one lease. Answers with where to go on, and with the keys and tokens of these
-- events. ARGV: prefix, what the lease's tokens begin with, where to go on, and how many events to look at.
local LEASE, rows = ARGV[2], {}
local found = redis.call('ZSCAN', RUNNING, ARGV[3], 'COUNT', ARGV[4])
local members = found[2]
for index = 1, #members, 2 do
  local number = members[index]
  local entry = entry_at(number)
  local record = entry and read(claim_key(entry.key))
  local is_held = record and record.number == number and is_running(record)
  if is_held and string.sub(record.token, 1, #LEASE) == LEASE then
    rows[#rows + 1] = { entry.key, record.token }
  end
end
return { found[1], rows }
