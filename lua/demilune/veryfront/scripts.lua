--- veryfront/scripts.lua - what runs in a Veryfront sandbox for the driver: POSIX sh with coreutils or busybox.
--
-- The service runs commands and moves text files; deadlines, process groups, bytes and listings are made of that.
local scripts = {}

--- Exit codes by which LAUNCH says what no command said. `is_late` and `is_lost` in veryfront/run.lua look for more.
scripts.TIMED_OUT_CODE = 199
scripts.NO_DIRECTORY_CODE = 198
scripts.NO_DIRECTORY_MARK = "demilune: no such directory"

--- sh LAUNCH STAMP SECONDS CWD ARGV…: runs ARGV in a session of its own and ends all of it at the deadline, or when TERM
--- comes. What is ended may not have its session yet, so it is killed by itself first. The watch leaves no `sleep` behind
--- where there is a setsid.
scripts.LAUNCH = ([[
t=$1; cd -- "$2" 2>/dev/null || { echo '%s' >&2; exit %d; }
shift 2; s=; x=; if command -v setsid >/dev/null 2>&1; then s=setsid; fi
end() { kill -KILL $1; [ -z "$s" ] || kill -KILL -$1; }
$s "$@" </dev/null & p=$!
trap 'x=%d; end $p 2>/dev/null' USR1
trap 'x=143; end $p 2>/dev/null' TERM
$s sh -c 'sleep "$1"; kill -USR1 "$2"' sh "$t" $$ >/dev/null 2>&1 </dev/null & w=$!
wait $p; r=$?
end $w 2>/dev/null
exit ${x:-$r}
]]):format(scripts.NO_DIRECTORY_MARK, scripts.NO_DIRECTORY_CODE, scripts.TIMED_OUT_CODE)

--- sh DETACH STAMP CWD ARGV…: runs ARGV; TERM is passed on to it, USR1 is its KILL.
scripts.DETACH = [[
cd -- "$1" || exit 1
shift; "$@" </dev/null & p=$!
trap 'kill -TERM $p 2>/dev/null' TERM
trap 'kill -KILL $p 2>/dev/null' USR1
while kill -0 $p 2>/dev/null; do wait $p; r=$?; done
exit ${r:-0}
]]

--- sh SIGNAL s HALF HALF SIGNAL: signals the processes whose arguments hold a stamp, which comes in two halves so that this
--- one is none of them. Exit code 0 where there was one.
scripts.SIGNAL = [[
n=1; for c in /proc/[0-9]*/cmdline; do
  { tr '\0' '\n' <"$c" | grep -qxF "$1$2"; } 2>/dev/null || continue
  c=${c#/proc/}; kill -"$3" "${c%/cmdline}" 2>/dev/null && n=0
done; exit $n
]]

return scripts
