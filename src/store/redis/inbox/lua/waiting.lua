-- How many events are waiting: all but those that run or have ended. ARGV: prefix.
return redis.call('XLEN', EVENTS) - redis.call('ZCARD', RUNNING) - redis.call('ZCARD', COMPLETED) - redis.call('ZCARD', DEAD)
