--- background_scripts.lua - what runs in the sandbox for a background task: POSIX sh, on any provider.
--
-- A task's folder holds: command, wrapper (its pid), pid (the command's, which leads its group), stdout, stderr, exit
-- ("CODE TIME"), and timed_out or cancelled where that ended it.
local scripts = {}

--- The sandbox's variables are the command's alone: a PATH among them must not break the wrapper.
local HEAD = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"

--- sh RUN DIR SECONDS: runs the command in a session of its own, its output through pipes into files of at most 64 MiB
--- (131072 blocks of 512 bytes), and ends it at the deadline: TERM, after two seconds KILL. What the command leaves behind
--- does not hold this up. `cat` and not `head`, which writes late.
scripts.RUN = [[
o=${PATH-/usr/local/bin:/usr/bin:/bin}; d=$1; t=$2; umask 077
]] .. HEAD .. [[
echo $$ >"$d/wrapper"
mkfifo "$d/o" "$d/e" || exit 1
save() { (ulimit -c 0; ulimit -f 131072; exec cat >"$1"); cat >/dev/null; : >"$2.done"; }
save "$d/stdout" "$d/o" <"$d/o" 2>/dev/null &
save "$d/stderr" "$d/e" <"$d/e" 2>/dev/null &
if b=$(command -v bash); then set -- "$b" -l "$d/command"; else set -- /bin/sh "$d/command"; fi
setsid env PATH="$o" "$@" >"$d/o" 2>"$d/e" </dev/null & p=$!
echo $p >"$d/pid"
setsid sh -c 'sleep "$2"; : >"$1/timed_out"; kill -TERM -"$3"; i=0
while [ $i -lt 20 ] && kill -0 -"$3"; do sleep 0.1; i=$((i+1)); done; kill -KILL -"$3"' sh "$d" "$t" $p >/dev/null 2>&1 & w=$!
wait $p; r=$?
if [ -e "$d/timed_out" ]; then wait $w; else kill -KILL -$w 2>/dev/null; fi
i=0; while [ $i -lt 20 ] && ! { [ -e "$d/o.done" ] && [ -e "$d/e.done" ]; }; do sleep 0.05; i=$((i+1)); done
echo "$r $(date +%s)" >"$d/exit.new"; mv "$d/exit.new" "$d/exit"
]]

--- sh LOOK DIR OUT_OFFSET ERR_OFFSET TENTHS BYTES: waits up to TENTHS of a second for news, then prints
--- "STATE CODE OUT_SIZE ERR_SIZE TIME" and, when BYTES > 0, stdout's bytes after that line and stderr's bytes to stderr:
--- from the offset on, or without one the head and tail. STATE: missing, starting, running, lost (the wrapper is dead and
--- left no exit), ended, timedout, cancelled.
scripts.LOOK = HEAD .. [[
d=$1; oo=$2; eo=$3; n=$4; b=$5
[ -e "$d/command" ] || { echo "missing  0 0 "; exit 0; }
size() { if [ -e "$1" ]; then wc -c <"$1"; else echo 0; fi; }
s0=$(size "$d/stdout"); e0=$(size "$d/stderr"); i=0
while [ $i -lt $n ] && [ ! -e "$d/exit" ]; do
  s=$(size "$d/stdout"); e=$(size "$d/stderr")
  [ -n "$oo" ] && [ $s -gt $oo ] && break; [ -n "$eo" ] && [ $e -gt $eo ] && break
  [ -z "$oo$eo" ] && [ "$s $e" != "$s0 $e0" ] && break
  sleep 0.1; i=$((i+1))
done
st=running; c=; f=; w=
[ -s "$d/wrapper" ] && read w <"$d/wrapper"
if [ -z "$w" ]; then st=starting; elif ! kill -0 $w 2>/dev/null; then st=lost; fi
if [ -e "$d/exit" ]; then
  st=ended; read c f <"$d/exit"
  if [ -e "$d/cancelled" ]; then st=cancelled; elif [ -e "$d/timed_out" ]; then st=timedout; fi
fi
s=$(size "$d/stdout"); e=$(size "$d/stderr")
echo "$st $c $((s)) $((e)) $f"
[ $b -gt 0 ] || exit 0
part() {
  [ $2 -gt 0 ] || return
  if [ -n "$3" ]; then [ $2 -le $3 ] || tail -c +$(($3+1)) "$1" | head -c $b
  elif [ $2 -le $b ]; then head -c $2 "$1"
  else head -c $b "$1"; tail -c $b "$1"; fi
}
part "$d/stdout" $s "$oo"; part "$d/stderr" $e "$eo" >&2
]]

--- sh CANCEL DIR: TERM to the command's process group, KILL after two seconds; waits until the wrapper has noted the end.
--- Nothing where the task has ended.
scripts.CANCEL = HEAD .. [[
d=$1; i=0
while [ ! -s "$d/pid" ] && [ $i -lt 20 ]; do sleep 0.1; i=$((i+1)); done
read p <"$d/pid" || exit 0
[ -e "$d/exit" ] && exit 0
: >"$d/cancelled"
kill -TERM -$p 2>/dev/null; i=0
while [ $i -lt 20 ] && kill -0 -$p 2>/dev/null; do sleep 0.1; i=$((i+1)); done
kill -KILL -$p 2>/dev/null; i=0
while [ $i -lt 30 ] && [ ! -e "$d/exit" ]; do sleep 0.1; i=$((i+1)); done
exit 0
]]

return scripts
