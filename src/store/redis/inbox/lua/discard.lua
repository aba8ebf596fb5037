-- Has events never run. ARGV: prefix, retention, for how long head and body stay, summary, then for each its key, its arrival and a token.
local discarded, at, retention, kept = 0, now(), tonumber(ARGV[2]), tonumber(ARGV[3])
return guarded(function()
  for index = 5, #ARGV, 3 do
    local claim, number = claim_key(ARGV[index]), ARGV[index + 1]
    local record = read(claim)
    local is_meant = record and record.number == number and (record.state == 'f' or is_waiting(record))
    local entry = is_meant and entry_at(number)
    if entry then
      touch(number)
      -- Nobody's token: whoever had it last must not take this for its own completion.
      record.token = ARGV[index + 2]
      write(claim, 'c', record, at, ARGV[4], 'PX', retention)
      redis.call('ZADD', COMPLETED, string.format('%d', at + retention), number)
      redis.call('ZREM', DEAD, number)
      keep_parcel(entry, kept)
      take_out(number, entry)
      leave_line(number, entry)
      discarded = discarded + 1
    end
  end
  return discarded
end)
