-- Extends a lease. KEYS: the claim. ARGV: prefix, token, lease.
local record = read(KEYS[1])
if not record or record.state == 'r' then
  return 'plain'
end
if record.token ~= ARGV[2] or not is_running(record) then
  return 'lost'
end
-- This comes first: one that has lapsed and is not held is only found where it was set aside.
hold({ id_of(record.number) }, tonumber(ARGV[3]), now())
if is_lapsed(record) then
  write_open(KEYS[1], record, record.time, 'r')
  local entry = entry_at(record.number)
  if entry then
    take_up(record.number, kind_of(entry))
  end
end
return 'held'
