-- Puts a leased event back. KEYS: the claim. ARGV: prefix, token, and for a retry the pause and the reason on one line. Without these
-- it is a release: it was no attempt, and the event is due since when it was due before.
local record = read(KEYS[1])
local refusal = refusal_of(record, KEYS[1], ARGV[2])
if refusal then
  return refusal
end
if record.state ~= 'a' then
  return 'lost'
end
if is_waiting(record) then
  return 'held'
end
local entry = is_running(record) and entry_at(record.number)
if not entry then
  return 'lost'
end
return guarded(function()
  local at = now()
  touch(record.number)
  if ARGV[3] then
    add_failure(record, at, ARGV[4])
    record.time = at + tonumber(ARGV[3])
  else
    record.attempts, record.time, record.is_started = record.attempts - 1, record.due, false
  end
  write_open(KEYS[1], record, 'w', record.time)
  let_go(record.number, entry)
  push_waiting(record.number, entry, record)
  return 'held'
end)
