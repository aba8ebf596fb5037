-- Puts a leased event back. KEYS: the claim. ARGV: prefix, token, and for a retry the pause and the reason on one line. Without these
-- it is a release, and was no attempt.
local record = read(KEYS[1])
if not record or record.state == 'r' then
  return 'plain'
end
if record.token ~= ARGV[2] or record.state ~= 'a' then
  return 'lost'
end
if is_waiting(record) then
  return 'held'
end
local at, entry = now(), entry_at(record.number)
if not entry then
  return 'lost'
end
local due = at
if ARGV[3] then
  due = at + tonumber(ARGV[3])
  add_failure(record, at, ARGV[4])
else
  record.attempts = record.attempts - 1
end
set_aside(record.number, entry, due)
write_open(KEYS[1], record, due, 'w')
redis.call('XACK', EVENTS, GROUP, id_of(record.number))
return 'held'
