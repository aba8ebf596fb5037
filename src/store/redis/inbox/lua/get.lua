-- All that is kept of one event, but for its parcel. KEYS: the claim. ARGV: prefix.
local record = read(KEYS[1])
local entry = record and record.number and entry_at(record.number)
if not entry or claim_key(entry.key) ~= KEYS[1] then
  return false
end
return { record.value, entry.key, entry.type, entry.received, entry.facts, redis.call('HGET', FAILURES, record.number) }
