--- background_scripts.lua - what runs in the sandbox for a background task: POSIX sh, on any provider.
--
-- A task's folder holds: command, pid, stdout, stderr, exit ("CODE TIME"), and timed_out where the deadline ended it.
local scripts = {}

--- sh RUN DIR SECONDS: runs the command in a session of its own, its output through pipes into files of at most 64 MiB,
--- and ends it at the deadline: TERM, after two seconds KILL. What the command leaves behind does not hold this up.
scripts.RUN = [[
d=$1; t=$2; m=67108864; umask 077
mkfifo "$d/o" "$d/e" || exit 1
{ head -c $m >"$d/stdout"; cat >/dev/null; : >"$d/o.done"; } <"$d/o" &
{ head -c $m >"$d/stderr"; cat >/dev/null; : >"$d/e.done"; } <"$d/e" &
c=$(cat "$d/command"; printf x); c=${c%x}
if command -v bash >/dev/null; then set -- bash -l -c "$c"; else set -- sh -c "$c"; fi
setsid "$@" >"$d/o" 2>"$d/e" </dev/null & p=$!
echo $p >"$d/pid"
setsid sh -c 'sleep "$2"; : >"$1/timed_out"; kill -TERM -"$3"; sleep 2; kill -KILL -"$3"' sh "$d" "$t" $p >/dev/null 2>&1 & w=$!
wait $p; r=$?
kill -KILL -$w 2>/dev/null
i=0; while [ $i -lt 20 ] && ! { [ -e "$d/o.done" ] && [ -e "$d/e.done" ]; }; do sleep 0.05; i=$((i+1)); done
echo "$r $(date +%s)" >"$d/exit.new"; mv "$d/exit.new" "$d/exit"
]]

--- sh LOOK DIR OUT_OFFSET ERR_OFFSET TENTHS BYTES: waits up to TENTHS of a second for news, then prints
--- "STATE CODE OUT_SIZE ERR_SIZE TIME" and, when BYTES > 0, stdout's bytes after that line and stderr's bytes to stderr:
--- from the offset on, or without one the head and tail.
scripts.LOOK = [[
d=$1; oo=$2; eo=$3; n=$4; b=$5
[ -e "$d/command" ] || { echo "missing  0 0 "; exit 0; }
size() { if [ -e "$1" ]; then wc -c <"$1"; else echo 0; fi; }
s0=$(size "$d/stdout"); e0=$(size "$d/stderr"); i=0
while [ $i -lt $n ] && [ ! -e "$d/exit" ]; do
  s=$(size "$d/stdout"); e=$(size "$d/stderr")
  [ -n "$oo" ] && [ $s -gt $oo ] && break; [ -n "$eo" ] && [ $e -gt $eo ] && break
  [ -z "$oo$eo" ] && [ $s$e != $s0$e0 ] && break
  sleep 0.1; i=$((i+1))
done
st=running; c=; f=
if [ -e "$d/exit" ]; then st=ended; read c f <"$d/exit"; [ -e "$d/timed_out" ] && st=timedout; fi
s=$(size "$d/stdout"); e=$(size "$d/stderr")
echo "$st $c $((s)) $((e)) $f"
[ $b -gt 0 ] || exit 0
part() {
  [ $2 -gt 0 ] || return
  if [ -n "$3" ]; then tail -c +$(($3+1)) "$1" | head -c $b
  elif [ $2 -le $b ]; then head -c $2 "$1"
  else head -c $b "$1"; tail -c $b "$1"; fi
}
part "$d/stdout" $s "$oo"; part "$d/stderr" $e "$eo" >&2
]]

--- sh CANCEL DIR: TERM to the command's process group, KILL after two seconds.
scripts.CANCEL = [[
d=$1; i=0
while [ ! -s "$d/pid" ] && [ $i -lt 20 ]; do sleep 0.1; i=$((i+1)); done
read p <"$d/pid" || exit 0
[ -e "$d/exit" ] && exit 0
kill -TERM -$p; i=0
while [ $i -lt 20 ] && kill -0 -$p 2>/dev/null; do sleep 0.1; i=$((i+1)); done
kill -KILL -$p 2>/dev/null
exit 0
]]

return scripts
