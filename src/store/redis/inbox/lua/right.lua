-- Puts right what a script that failed, or somebody else, has left behind: an event is where its record says.

-- How long an event runs on whose lease's end nobody knows, in milliseconds.
local GRACE = 30000

local function keep_only_in(kept, number)
  for _, set in ipairs({ RUNNING, COMPLETED, DEAD }) do
    if set ~= kept then
      redis.call('ZREM', set, number)
    end
  end
end

local function put_right_ended(number, entry, record, claim)
  local set = record.state == 'f' and DEAD or COMPLETED
  if set == DEAD then
    redis.call('ZADD', DEAD, 0, number)
  else
    local left = math.max(redis.call('PTTL', claim), 1)
    redis.call('ZADD', COMPLETED, string.format('%d', now() + left), number)
    if redis.call('PTTL', PARCEL .. entry.parcel) < 0 then
      keep_parcel(entry, left)
    end
  end
  keep_only_in(set, number)
  take_out(number, entry)
  leave_line(number, entry)
end

local function put_right_running(number, entry, record)
  keep_only_in(RUNNING, number)
  local ends = redis.call('ZSCORE', RUNNING, number)
  if not ends then
    redis.call('ZADD', RUNNING, string.format('%d', now() + GRACE), number)
  elseif ends == 'inf' then
    push(TRIED, entry.endpoint, entry.type, number, record.time)
  else
    take_out(number, entry)
  end
  if entry.order ~= '' then
    redis.call('ZADD', LINE .. entry.order, 0, number)
  end
end

-- A receiver claimed the event, which it could since somebody had deleted the record. Unless the receiver completes it, it has to be run.
local function wait_for_claim(number, entry, claim)
  local left, ends = redis.call('PTTL', claim), redis.call('ZSCORE', RUNNING, number)
  local claimed_until = now() + (left > 0 and left or GRACE)
  -- A worker may have the event as well, and for longer.
  if not ends or ends == 'inf' or tonumber(ends) < claimed_until then
    redis.call('ZADD', RUNNING, string.format('%d', claimed_until), number)
  end
  keep_only_in(RUNNING, number)
  take_out(number, entry)
end

local function put_right(number, entry)
  entry = entry or entry_at(number)
  if not entry then
    keep_only_in(nil, number)
    redis.call('HDEL', FAILURES, number)
    return
  end
  local claim = claim_key(entry.key)
  local record = read(claim)
  if not record and redis.call('ZSCORE', DEAD, number) then
    record = { state = 'f', token = string.rep('A', 22), print = entry.print, number = number, attempts = 0 }
    write(claim, 'f', record, now(), 'its record was deleted')
  end
  local ends = not record and redis.call('ZSCORE', RUNNING, number)
  if ends and tonumber(ends) > now() and ends ~= 'inf' then
    -- Somebody deleted the record, and a worker still has the event: it is run again when that lease has lapsed.
    return
  end
  if record and record.state == 'r' then
    return wait_for_claim(number, entry, claim)
  end
  local is_open = open_record(number, entry)
  if is_open and is_running(is_open) then
    put_right_running(number, entry, is_open)
  elseif is_open then
    keep_only_in(nil, number)
    is_open.time = is_open.time or now()
    redis.call('PERSIST', PARCEL .. entry.parcel)
    offer(number, entry, is_open)
  elseif record and record.number == number then
    put_right_ended(number, entry, record, claim)
  else
    erase(number, entry)
  end
end

-- Puts some of those right that scripts noted down before they failed. One that cannot be is left for later.
local function put_right_noted(most)
  for _, number in ipairs(redis.call('SRANDMEMBER', UNSETTLED, most)) do
    if pcall(put_right, number) then
      redis.call('SREM', UNSETTLED, number)
    end
  end
end
