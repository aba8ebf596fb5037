-- Deletes what is left of some completed events whose retention is over, and says whether there is more. ARGV: prefix, how many.
return purge(now(), tonumber(ARGV[2]))
