--- background_scripts.lua - what runs in the sandbox for a background task: POSIX sh, on any provider.
--
-- A task's folder holds: command, wrapper (its pid), pid (the command's, which leads its group), stdout, stderr, exit
-- ("CODE TIME"), and timed_out or cancelled where that ended it. The command may write there too, and plant what blocks
-- whoever opens it: so nothing is read but regular files, and little of them.
local scripts = {}

--- The sandbox's variables are the command's alone: a PATH among them must not break the wrapper.
local HEAD = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"

--- real FILE: a regular file, and no link to one. first FILE: its first line, at most 64 bytes. number TEXT: prints it
--- where it is digits, nothing else.
local READ = [[
real() { [ -f "$1" ] && [ ! -L "$1" ]; }
first() { if real "$1"; then head -c 64 "$1" | head -n 1; fi; }
number() { case $1 in *[!0-9]*) ;; *) echo "$1";; esac; }
]]

--- sh RUN DIR SECONDS: runs the command in a session of its own, its output through pipes into files of at most 64 MiB
--- (131072 blocks of 512 bytes), and ends it at the deadline: TERM, after two seconds KILL. TERM to the wrapper's own group
--- does the same at once, with the pid that the wrapper remembers; its helpers go on. What the command leaves behind does
--- not hold this up. `cat` and not `head`, which writes late.
scripts.RUN = [[
o=${PATH-/usr/local/bin:/usr/bin:/bin}; d=$1; t=$2; p=; s=; umask 077
]] .. HEAD .. [[
stop() {
  s=1; [ -n "$p" ] || return 0
  trap '' TERM; [ -e "$d/exit" ] || [ -e "$d/cancelled" ] || (: >"$d/cancelled") 2>/dev/null
  kill -TERM -$p 2>/dev/null; i=0
  while [ $i -lt 20 ] && kill -0 -$p 2>/dev/null; do sleep 0.1; i=$((i+1)); done
  kill -KILL -$p 2>/dev/null
}
trap stop TERM
echo $$ >"$d/wrapper"
mkfifo "$d/o" "$d/e" || exit 1
save() { trap '' TERM; (ulimit -c 0; ulimit -f 131072; exec cat >"$1"); cat >/dev/null; : >"$2.done"; }
save "$d/stdout" "$d/o" <"$d/o" 2>/dev/null &
save "$d/stderr" "$d/e" <"$d/e" 2>/dev/null &
if b=$(command -v bash); then set -- "$b" -l "$d/command"; else set -- /bin/sh "$d/command"; fi
setsid env PATH="$o" "$@" >"$d/o" 2>"$d/e" </dev/null & p=$!
setsid sh -c 'sleep "$2"; : >"$1/timed_out"; kill -TERM -"$3"; i=0
while [ $i -lt 20 ] && kill -0 -"$3"; do sleep 0.1; i=$((i+1)); done; kill -KILL -"$3"' sh "$d" "$t" $p >/dev/null 2>&1 & w=$!
echo $p >"$d/pid"
[ -z "$s" ] || stop
wait $p; r=$?
if [ -n "$s" ]; then wait $p; r=$?; fi
trap '' TERM
if [ -e "$d/timed_out" ]; then wait $w; else kill -KILL -$w 2>/dev/null; fi
i=0; while [ $i -lt 20 ] && ! { [ -e "$d/o.done" ] && [ -e "$d/e.done" ]; }; do sleep 0.05; i=$((i+1)); done
rm -rf "$d/exit.new" "$d/exit"
echo "$r $(date +%s)" >"$d/exit.new"; mv "$d/exit.new" "$d/exit"
]]

--- sh LOOK DIR OUT_OFFSET ERR_OFFSET TENTHS BYTES SLICE BEFORE: waits up to TENTHS of a second for news of either stream,
--- then prints "STATE CODE OUT_SIZE ERR_SIZE TIME" and, when BYTES > 0, stdout's bytes after that line and stderr's bytes to
--- stderr: SLICE bytes from BEFORE bytes before the offset on, or without one head and tail, BYTES each. STATE: missing,
--- starting, running, lost (the wrapper is dead and left no exit), ended, timedout, cancelled.
scripts.LOOK = HEAD .. READ .. [[
d=$1; oo=$2; eo=$3; n=$4; b=$5; slice=$6; before=$7
[ -f "$d/command" ] || { echo "missing  0 0 "; exit 0; }
size() { if real "$1"; then wc -c <"$1"; else echo 0; fi; }
s0=${oo:-$(size "$d/stdout")}; e0=${eo:-$(size "$d/stderr")}; i=0
while [ $i -lt $n ] && ! real "$d/exit"; do
  [ $(size "$d/stdout") -gt $s0 ] && break; [ $(size "$d/stderr") -gt $e0 ] && break
  sleep 0.1; i=$((i+1))
done
st=running; c=; f=; w=$(number "$(first "$d/wrapper")")
if [ -z "$w" ]; then st=starting; elif ! kill -0 $w 2>/dev/null; then st=lost; fi
if real "$d/exit"; then
  set -f; set -- $(first "$d/exit")
  st=ended; c=$(number "$1"); f=$(number "$2")
  if [ -e "$d/cancelled" ]; then st=cancelled; elif [ -e "$d/timed_out" ]; then st=timedout; fi
fi
s=$(size "$d/stdout"); e=$(size "$d/stderr")
echo "$st $c $((s)) $((e)) $f"
[ $b -gt 0 ] || exit 0
part() {
  [ $2 -gt 0 ] || return
  if [ -n "$3" ]; then
    x=$(($3 > before ? $3 - before : 0)); [ $2 -le $x ] || tail -c +$((x+1)) "$1" | head -c $slice
  elif [ $2 -le $b ]; then head -c $2 "$1"
  else head -c $b "$1"; tail -c $b "$1"; fi
}
part "$d/stdout" $s "$oo"; part "$d/stderr" $e "$eo" >&2
]]

--- sh CANCEL DIR: TERM to the command's process group, KILL after two seconds; waits until the wrapper has noted the end.
--- Also where an end was noted: what is left of the group goes. A wrapper that was stopped goes on, to hear of its end.
scripts.CANCEL = HEAD .. READ .. [[
d=$1; i=0; w=$(number "$(first "$d/wrapper")")
[ "${w:-0}" -gt 1 ] && kill -CONT $w 2>/dev/null
while [ ! -s "$d/pid" ] && [ ! -e "$d/exit" ] && [ $i -lt 20 ]; do sleep 0.1; i=$((i+1)); done
p=$(number "$(first "$d/pid")")
[ "${p:-0}" -gt 1 ] || exit 0
kill -0 -$p 2>/dev/null || [ ! -e "$d/exit" ] || exit 0
[ -e "$d/exit" ] || [ -e "$d/cancelled" ] || (: >"$d/cancelled") 2>/dev/null
kill -TERM -$p 2>/dev/null; i=0
while [ $i -lt 20 ] && kill -0 -$p 2>/dev/null; do sleep 0.1; i=$((i+1)); done
kill -KILL -$p 2>/dev/null; i=0
while [ $i -lt 30 ] && [ ! -e "$d/exit" ]; do sleep 0.1; i=$((i+1)); done
exit 0
]]

return scripts
