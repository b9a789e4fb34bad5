"""The keys of the journal in a Redis or Valkey server, and the scripts that alone write its head, and who leads.

All keys share one hash tag, so on a cluster they lie in one slot and a script may touch them together; of a cell (`store.cell`) the tag is
`{hetsched:NAME}`:

    {hetsched}:head        hash: cluster, epoch, seq, crc, format, snapshots (JSON, newest first), unfinished (JSON)
    {hetsched}:journal     stream: id <epoch>-<seq>, field `frame`
    {hetsched}:snapshot:NAME:INDEX   chunks
    {hetsched}:leader      hash with a time to live: holder, card (JSON), renewals (count, since that holder's epoch opened)
    {hetsched}:standbys    hash: holder → milliseconds of the server's clock, space, card
    {hetsched:NAME}:inbox  stream: letters from other cells, fields `from` and `letter` (`post.py`)
    {hetsched:NAME}:digest what the cell tells of itself; the names of all cells are in the hash {hetsched:cells}:names

A script runs alone and reaches the server's file as one transaction, so head and stream never disagree. Promise: whatever is
resent, reordered or comes from a deposed daemon, the stream holds each (epoch, seq) once, without gaps.

The first line (`#!lua`) makes a full server refuse the script before it begins; servers before 7.0 do not know it and
refuse at the first write instead, which comes first for this reason. `PUBLISH` may run on a full server: it frees memory.
"""

from __future__ import annotations

FIELD = b"frame"
FORMAT = 1


class Keys:
    """Where one journal lies. `cell`: whose; "" = a store that is not parted."""

    def __init__(self, cell: str) -> None:
        self.cell = cell
        self.tag = f"{{hetsched:{cell}}}" if cell else "{hetsched}"
        self.head = f"{self.tag}:head"
        self.journal = f"{self.tag}:journal"
        self.leader = f"{self.tag}:leader"
        self.standbys = f"{self.tag}:standbys"
        self.inbox = f"{self.tag}:inbox"
        self.digest = f"{self.tag}:digest"

    def chunk(self, name: str, index: int) -> str:
        """Of a snapshot."""
        return f"{self.tag}:snapshot:{name}:{index}"


WHOLE = Keys("")
NAMES = "{hetsched:cells}:names"


def without_shebang(script: str) -> str:
    """The script for a server older than 7.0."""
    first, rest = script.split("\n", 1)
    return rest if first.startswith("#!") else script


# KEYS head, journal · ARGV epoch, seq, crc, frame · answers [word, id of the frame or of the head]: words of backend.Answer
# The duplicate's HSET changes nothing; it is a write, and WAIT counts replicas up to the connection's own last write.
APPEND = """#!lua
local head = redis.call('HMGET', KEYS[1], 'epoch', 'seq')
if not head[1] then return {'EMPTY', ''} end
local id, at = ARGV[1] .. '-' .. ARGV[2], head[1] .. '-' .. head[2]
local epoch, seq = tonumber(head[1]), tonumber(head[2])
if tonumber(ARGV[2]) <= seq then
  local there = redis.call('XRANGE', KEYS[2], id, id)[1]
  if there and there[2][2] ~= ARGV[4] then return {'MISMATCH', at} end
  if there then
    redis.call('HSET', KEYS[1], 'seq', head[2])
    return {'DUPLICATE', id}
  end
end
if tonumber(ARGV[1]) < epoch then return {'DEPOSED', at} end
if tonumber(ARGV[1]) > epoch or tonumber(ARGV[2]) ~= seq + 1 then return {'BEHIND', at} end
redis.call('XADD', KEYS[2], id, 'frame', ARGV[4])
redis.call('HSET', KEYS[1], 'seq', ARGV[2], 'crc', ARGV[3])
return {'STORED', id}
"""

# KEYS head, journal · ARGV cluster, "1" to create it, format · answers the head as a flat list, or [word]
_OPENING = """
local cluster = redis.call('HGET', KEYS[1], 'cluster')
if not cluster then
  if ARGV[2] ~= '1' then return {'EMPTY'} end
  if redis.call('EXISTS', KEYS[2]) == 1 then return {'HEADLESS'} end
  redis.call('HSET', KEYS[1], 'cluster', ARGV[1], 'epoch', 0, 'seq', 0, 'crc', 0, 'format', ARGV[3])
elseif cluster ~= ARGV[1] then return {'CHANGED'} end
redis.call('HINCRBY', KEYS[1], 'epoch', 1)
"""
OPEN = f"""#!lua{_OPENING}
return redis.call('HGETALL', KEYS[1])
"""

# The same where several daemons share the store. KEYS head, journal, leader · ARGV as above, holder, card, lease in ms,
# and whom only the server's clock keeps in office: holder and count of renewals, "" = nobody · or [LED, holder, card, renewals]
CLAIM = f"""#!lua
local leader = redis.call('HMGET', KEYS[3], 'holder', 'card', 'renewals')
local is_dead = leader[1] == ARGV[7] and leader[3] == ARGV[8]
if leader[1] and leader[1] ~= ARGV[4] and not is_dead then return {{'LED', leader[1], leader[2], leader[3]}} end
{_OPENING}
redis.call('HSET', KEYS[3], 'holder', ARGV[4], 'card', ARGV[5], 'renewals', 0)
redis.call('PEXPIRE', KEYS[3], ARGV[6])
return redis.call('HGETALL', KEYS[1])
"""

# KEYS head, leader · ARGV epoch, holder, card, lease in ms · answers 1, or 0 where a higher epoch leads
RENEW = """#!lua flags=allow-oom
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[2], 'holder', ARGV[2], 'card', ARGV[3])
redis.call('HINCRBY', KEYS[2], 'renewals', 1)
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return 1
"""

# KEYS head, leader · ARGV epoch, holder of the successor or "" (whoever comes first), its card, lease in ms · answers as RENEW
PASS_ON = """#!lua flags=allow-oom
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2])
if ARGV[2] ~= '' then
  redis.call('HSET', KEYS[2], 'holder', ARGV[2], 'card', ARGV[3], 'renewals', 0)
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
return 1
"""

# KEYS leader · answers [holder, card, renewals] or []
WHO = """#!lua flags=no-writes
local leader = redis.call('HMGET', KEYS[1], 'holder', 'card', 'renewals')
return leader[1] and leader or {}
"""

# KEYS standbys · ARGV holder, card, lease in ms. Those who have not said so for a lease are struck off.
STAND_BY = """#!lua
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if now - tonumber(string.match(all[i + 1], '^%d+')) > tonumber(ARGV[3]) then redis.call('HDEL', KEYS[1], all[i]) end
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%d', now) .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
"""

# KEYS standbys · answers holder, card, holder, card …
STANDBYS_NOW = """#!lua flags=no-writes
local all = redis.call('HGETALL', KEYS[1])
for i = 2, #all, 2 do all[i] = string.match(all[i], '^%d+ (.*)$') end
return all
"""

# KEYS head, journal, chunks… · ARGV epoch, snapshots, id to trim to or "" · answers OK, DEPOSED, or the key that is missing
PUBLISH = """#!lua flags=allow-oom
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 'DEPOSED' end
for i = 3, #KEYS do
  if redis.call('EXISTS', KEYS[i]) == 0 then return KEYS[i] end
end
redis.call('HSET', KEYS[1], 'snapshots', ARGV[2])
redis.call('HDEL', KEYS[1], 'unfinished')
if ARGV[3] ~= '' then redis.call('XTRIM', KEYS[2], 'MINID', '=', ARGV[3]) end
return 'OK'
"""

# Of `hetsched journal truncate`. The stream is never deleted, and its last id goes back only to a frame that is there.
# KEYS head, journal · ARGV epoch, ids… · answers OK or DEPOSED
CUT = """#!lua flags=allow-oom
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 'DEPOSED' end
for i = 2, #ARGV do redis.call('XDEL', KEYS[2], ARGV[i]) end
return 'OK'
"""

# Of `hetsched journal mend`. KEYS head, leader · ARGV cluster, epoch, seq, crc, format, snapshots · answers OK, or LED where a daemon leads
REHEAD = """#!lua flags=allow-oom
if redis.call('EXISTS', KEYS[2]) == 1 then return 'LED' end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'cluster', ARGV[1], 'epoch', ARGV[2], 'seq', ARGV[3], 'crc', ARGV[4], 'format', ARGV[5], 'snapshots', ARGV[6])
return 'OK'
"""

# KEYS head, journal · ARGV epoch, id of the last frame, its seq and crc, snapshots · answers OK or DEPOSED
END = """#!lua flags=allow-oom
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 'DEPOSED' end
redis.call('HSET', KEYS[1], 'seq', ARGV[3], 'crc', ARGV[4], 'snapshots', ARGV[5])
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('XSETID', KEYS[2], ARGV[2]) end
return 'OK'
"""
