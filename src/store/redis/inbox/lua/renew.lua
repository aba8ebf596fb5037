-- Extends a lease. KEYS: the claim. ARGV: prefix, token, lease, and whether the event's handler is about to be called.
local record = read(KEYS[1])
local refusal = refusal_of(record, KEYS[1], ARGV[2])
if refusal then
  return refusal
end
if not is_running(record) then
  return 'lost'
end
return guarded(function()
  local ends = redis.call('ZSCORE', RUNNING, record.number)
  touch(record.number)
  -- This comes first: one that has lapsed and is not held is only found where it is due.
  redis.call('ZADD', RUNNING, string.format('%d', now() + tonumber(ARGV[3])), record.number)
  if ARGV[4] == '1' and not record.is_started then
    record.is_started = true
    write_open(KEYS[1], record, 'r', record.time)
  end
  local entry = (not ends or ends == 'inf') and entry_at(record.number)
  if entry then
    pull(TRIED, entry.endpoint, entry.type, record.number)
  end
  return 'held'
end)
