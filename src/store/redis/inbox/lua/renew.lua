-- Extends a lease. KEYS: the claim. ARGV: prefix, token, lease.
local record = read(KEYS[1])
if not record or record.state == 'r' then
  return 'plain'
end
if record.token ~= ARGV[2] or not is_running(record) then
  return 'lost'
end
if string.sub(record.rest, 1, 1) == 'l' then
  local entry = entry_of(record.number)
  if entry then
    take_up(record.number, kind_of(entry))
  end
  write_open(KEYS[1], record, record.time, 'r')
end
hold({ id_of(record.number) }, tonumber(ARGV[3]), now())
return 'held'
