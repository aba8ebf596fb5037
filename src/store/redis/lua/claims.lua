-- The scripts of inline claims. KEYS: the key of the record. They return the record that prevents the change, or nil.

-- Writes a record if there is none, or if the caller holds the running claim. ARGV: how a running claim of the caller
-- begins, the new record, its time to live.
-- name: put_if_free
local found = redis.call('GET', KEYS[1])
if not found or string.sub(found, 1, #ARGV[1]) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return false
end

-- name: put
-- needs: put_if_free
return found

-- Also writes the caller's own settled record again, unchanged: from Redis 7.2 on, WAIT is about the writes of its own
-- connection, and would confirm a record that was only read without asking any replica.
-- name: put_or_repeat
-- needs: put_if_free
if string.sub(found, 2, #ARGV[1]) == string.sub(ARGV[1], 2) then
  redis.call('SET', KEYS[1], found, 'KEEPTTL')
end
return found

-- Deletes the caller's running claim. ARGV: how it begins.
-- name: delete
local found = redis.call('GET', KEYS[1])
if found and string.sub(found, 1, #ARGV[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return false
end
return found

-- Calls each command in ARGV, with the key in the place of KEY, and returns the numbers of those that the user has no
-- right to. If the first or the second is refused, only the last one is called after it: the server logs every refusal.
-- name: try_commands
local denied, is_over = {}, false
for number, call in ipairs(ARGV) do
  if not is_over or number == #ARGV then
    local words = {}
    for word in string.gmatch(call, '%S+') do
      words[#words + 1] = word == 'KEY' and KEYS[1] or word
    end
    local reply = redis.pcall(unpack(words))
    local why = type(reply) == 'table' and reply.err
    if why and (string.find(why, 'executing the script can', 1, true) or string.find(why, 'permission', 1, true)) then
      denied[#denied + 1] = number
      is_over = is_over or number <= 2
    end
  end
end
return denied
