-- Completes a leased event. KEYS: the claim. ARGV: prefix, token, retention, for how long head and body stay, summary.
local record = read(KEYS[1])
local refusal = refusal_of(record, KEYS[1], ARGV[2])
if refusal then
  return refusal
end
if record.state == 'c' then
  -- Written again as it is: from Redis 7.2 on WAIT is about what its own connection wrote.
  redis.call('SET', KEYS[1], record.value, 'KEEPTTL')
  return 'held'
end
if not is_running(record) then
  return 'lost'
end
return guarded(function()
  local at, retention, entry = now(), tonumber(ARGV[3]), entry_at(record.number)
  touch(record.number)
  if entry then
    note_applied(entry)
  end
  -- From here on it is completed: what is left to do is put right by its record, if this fails.
  write(KEYS[1], 'c', record, at, ARGV[5], 'PX', retention)
  let_go(record.number, entry)
  if entry then
    redis.call('ZADD', COMPLETED, string.format('%d', at + retention), record.number)
    keep_parcel(entry, tonumber(ARGV[4]))
    leave_line(record.number, entry)
  end
  return 'held'
end)
