-- Deletes completed and dead events. ARGV: prefix, then for each its key and its arrival.
local forgotten, soon = 0, string.format('%d', now() + 60000)
return guarded(function()
  for index = 2, #ARGV, 2 do
    local claim, number = claim_key(ARGV[index]), ARGV[index + 1]
    local record = read(claim)
    if record and record.number == number and record.state ~= 'a' then
      local entry = entry_at(number)
      touch(number)
      -- As if its retention was over soon: if the script fails without its record, what is left goes then.
      redis.call('ZADD', COMPLETED, soon, number)
      redis.call('ZREM', DEAD, number)
      if entry then
        drop_parcel(entry)
      end
      redis.call('DEL', claim)
      if entry then
        erase(number, entry)
      else
        redis.call('ZREM', COMPLETED, number)
        redis.call('HDEL', FAILURES, number)
      end
      forgotten = forgotten + 1
    end
  end
  return forgotten
end)
