-- timeout: 240
--- What a sandbox promises, seen from inside: the same promises whoever runs the engine.

local cjson = require "cjson"
local os_calls = require "spec_os"
local probe = require "spec.sandbox.probe"

local DISK_MB, MEMORY_MB, PIDS = 48, 128, 96

local MACHINE = io.popen("uname -m"):read("l")
-- System call numbers: what is refused, and how it is tried. `above` 423 they are the same everywhere.
local NUMBERS = {
  x86_64 = {
    unshare = 272, setns = 308, mount = 165, umount2 = 166, pivot_root = 155, ptrace = 101, bpf = 321, userfaultfd = 323,
    perf_event_open = 298, keyctl = 250, process_vm_readv = 310, process_vm_writev = 311, open_by_handle_at = 304,
    kexec_load = 246, init_module = 175, socket = 41, socketpair = 53, ioctl = 16, clone = 56, chroot = 161, reboot = 169,
    swapon = 167, acct = 163, settimeofday = 164, add_key = 248,
  },
  aarch64 = {
    unshare = 97, setns = 268, mount = 40, umount2 = 39, pivot_root = 41, ptrace = 117, bpf = 280, userfaultfd = 282,
    perf_event_open = 241, keyctl = 219, process_vm_readv = 270, process_vm_writev = 271, open_by_handle_at = 265,
    kexec_load = 104, init_module = 105, socket = 198, socketpair = 199, ioctl = 29, clone = 220, chroot = 51,
    reboot = 142, swapon = 224, acct = 89, settimeofday = 170, add_key = 217,
  },
}
local EVERYWHERE = {
  io_uring_setup = 425, io_uring_enter = 426, io_uring_register = 427, open_tree = 428, move_mount = 429, fsopen = 430,
  fsconfig = 431, fsmount = 432, fspick = 433, pidfd_getfd = 438, clone3 = 435, mount_setattr = 442,
  open_tree_attr = 467,
}

local EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97

--- A script that makes one system call and prints the errno, 0 for success.
local function call(number, ...)
  local arguments = {}
  for i, value in ipairs { ... } do arguments[i] = ", " .. value end
  return ("perl -e '$! = 0; my $r = syscall(%d%s); print $r < 0 ? $!+0 : 0'"):format(number, table.concat(arguments))
end

local CLONE_FLAGS = {
  mount = 0x20000, cgroup = 0x2000000, uts = 0x4000000, ipc = 0x8000000, user = 0x10000000, pid = 0x20000000,
  net = 0x40000000,
}

local SCRIPTS = {
  id = "id -u; id -g; id -un",
  status = "cat /proc/self/status",
  root = "ls -1 /",
  etc = "ls -1 /etc",
  mountinfo = "cat /proc/self/mountinfo",
  writes = "for d in / /etc /dev /usr /usr/local/etc /etc/ssl /proc /var; do touch $d/x 2>/dev/null && echo $d; done; "
    .. "echo x 2>/dev/null >/etc/passwd && echo passwd; rm -f /etc/hosts 2>/dev/null && echo hosts; "
    .. "mv /etc/hosts /etc/h 2>/dev/null && echo mv; true",
  homes = "for d in /home/user /tmp /run /var/tmp /dev/shm; do touch $d/x && echo $d; done",
  hidden = "ls -A /usr/local/etc 2>/dev/null; ls -A /etc/ssl/private 2>/dev/null; true",
  secret = "cat /usr/local/share/dml-spec-secret; ls -l /usr/local/share/dml-spec-secret",
  interfaces = "tail -n +3 /proc/net/dev",
  unix_sockets = "tail -n +2 /proc/net/unix | grep -c @; find / -xdev -type s 2>/dev/null",
  host_server = "perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(PeerAddr => \"127.0.0.1:%PORT%\") ? 1 : 0'",
  processes = "ls /proc | grep -c '^[0-9]'; kill -0 %PID% 2>/dev/null && echo seen; cat /proc/1/cmdline",
  first_process = "cat /proc/1/environ /proc/1/maps 2>/dev/null; ls /proc/1/fd 2>/dev/null; true",
  environment = "env | sort",
  fds = "ls -l /proc/self/fd | tail -n +2",
  python_threads = "python3 -c 'import threading; t = threading.Thread(target=print, args=(\"ran\",)); t.start(); t.join()'",
  node = "node -e 'console.log(6 * 7)'",
  login_shell = "PATH=/usr/bin:/bin:/mine bash -lc 'echo $PATH'",
  umask = "umask",
  serve = "perl -MIO::Socket::INET -e 'my $s = IO::Socket::INET->new(LocalAddr => \"127.0.0.1:7777\", Listen => 1) or die; "
    .. "if (fork) { exit } close STDOUT; close STDERR; my $c = $s->accept; print $c \"hello\\n\"; close $c' ",
  connect = "perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(PeerAddr => \"127.0.0.1:7777\")->getline'",
  look_up = "perl -MTime::HiRes=time -e 'my $t = time; my $a = gethostbyname(\"example.com\"); "
    .. "printf \"%d %d\", $a ? 1 : 0, (time - $t) * 1000'",
  own_name = "perl -MSys::Hostname -e 'print gethostbyname(hostname()) ? 1 : 0'",
  fork_bomb = "perl -e 'my @p; while (@p < 5000) { my $p = fork; last unless defined $p; if (!$p) { sleep 20; exit } "
    .. "push @p, $p } print scalar @p; kill 9, @p'",
  after_bomb = "echo alive",
  home_full = "head -c 200M /dev/zero >/home/user/big; stat -c %s /home/user/big; rm -f /home/user/big",
  tmp_full = "head -c 200M /dev/zero >/tmp/big; stat -c %s /tmp/big; rm -f /tmp/big",
  memory_hog = "perl -e 'my $x = \"a\" x (600 * 1024 * 1024); print length $x'",
  after_hog = "echo alive",
}

local function build_scripts(port, pid)
  local list, numbers = {}, NUMBERS[MACHINE]
  local function add(name, script) list[#list + 1] = { name = name, script = script } end
  for name, script in pairs(SCRIPTS) do
    add(name, (script:gsub("%%PORT%%", port):gsub("%%PID%%", pid)))
  end
  -- What exhausts something comes last, and each is followed by a sign of life.
  local late = { serve = 1, connect = 2, home_full = 3, tmp_full = 4, memory_hog = 5, after_hog = 6, fork_bomb = 7,
    after_bomb = 8 }
  if numbers then
    for name, number in pairs(numbers) do
      if not name:match("^socket") and name ~= "ioctl" and name ~= "clone" then
        add("call " .. name, call(number, 0, 0, 0, 0, 0))
      end
    end
    for name, number in pairs(EVERYWHERE) do add("call " .. name, call(number, 0, 0, 0, 0, 0)) end
    for name, flag in pairs(CLONE_FLAGS) do add("clone " .. name, call(numbers.clone, flag | 17, 0, 0, 0, 0)) end
    local families = { unix = "1, 1, 0", inet = "2, 1, 0", inet6 = "10, 1, 0", route = "16, 3, 0", packet = "17, 3, 0",
      alg = "38, 5, 0", vsock = "40, 1, 0", audit = "16, 3, 9", generic = "16, 3, 16", high = "0x100000028, 1, 0",
      high_protocol = "16, 3, 0x100000009", bluetooth = "31, 3, 0", zero = "0, 1, 0" }
    for name, arguments in pairs(families) do add("socket " .. name, call(numbers.socket, arguments)) end
    add("socketpair tipc", call(numbers.socketpair, "30, 1, 0, 0"))
    add("ioctl tiocsti", call(numbers.ioctl, "0, 0x5412, 0"))
    add("ioctl tiocsti high", call(numbers.ioctl, "0, 0x100005412, 0"))
    add("ioctl tioclinux", call(numbers.ioctl, "0, 0x541c, 0"))
    -- 32-bit numbers in the x32 table: a foreign architecture to the filter.
    if MACHINE == "x86_64" then add("foreign", call(0x40000000 + 39)) end
  end
  table.sort(list, function(a, b)
    local x, y = late[a.name] or 0, late[b.name] or 0
    if x ~= y then return x < y end
    return a.name < b.name
  end)
  return list
end

local function lines(text)
  local list = {}
  for line in text:gmatch("[^\n]+") do list[#list + 1] = line end
  return list
end

local ETC_OURS = { "passwd", "group", "hosts", "hostname", "nsswitch.conf", "resolv.conf", "machine-id", "profile",
  "shells", "mtab" }
local ETC_HOSTS = { "^alternatives$", "^ld%.so%.cache$", "^ld%.so%.conf$", "^ld%.so%.conf%.d$", "^ssl$",
  "^ca%-certificates$", "^ca%-certificates%.conf$", "^localtime$", "^mime%.types$", "^fonts$", "^python3", "^R$", "^java" }

local function is_promised(name)
  for _, ours in ipairs(ETC_OURS) do
    if name == ours then return true end
  end
  for _, pattern in ipairs(ETC_HOSTS) do
    if name:match(pattern) then return true end
  end
  return false
end

local function status_field(text, key) return text:match("\n" .. key .. ":[ \t]*([^\n]*)") end

for _, identity in ipairs(probe.identities()) do
  describe("a sandbox of a " .. identity .. " engine", function()
    local answer, results
    local secret = "/usr/local/share/dml-spec-secret"
    local server, port

    --- A TCP server of the host: perl says its port and serves until it is killed.
    local function start_server()
      local reader, writer = os_calls.pipe()
      server = assert(os_calls.spawn({ "/usr/bin/perl", "-MIO::Socket::INET", "-e",
        "$| = 1; my $s = IO::Socket::INET->new(LocalAddr => '127.0.0.1:0', Listen => 5); print $s->sockport, qq{\\n}; sleep 300" },
        {}, nil, -1, writer, -1))
      os_calls.close(writer)
      port = assert(os_calls.read(reader, 16)):match("%d+")
      os_calls.close(reader)
    end

    setup(function()
      if probe.is_root() then
        os.execute("mkdir -p /usr/local/share && echo root-only >" .. secret .. " && chmod 600 " .. secret)
      end
      start_server()
      local _, _, pid = os_calls.ids()
      answer = probe.run(identity, "inside", {
        disk_mb = DISK_MB, memory_mb = MEMORY_MB, cpu = 1, pids = PIDS, scripts = build_scripts(port, tostring(pid)),
      })
      results = answer.results
    end)

    teardown(function()
      if probe.is_root() then os.remove(secret) end
      if server then
        os_calls.kill(server, 9)
        probe.eventually(function() return os_calls.wait(server) ~= false end)
      end
      probe.clear()
    end)

    it("runs as user 1000 inside and never as uid 0 outside", function()
      assert.are.equal("1000\n1000\nuser\n", results.id.output)
      for _, process in ipairs(answer.outside) do
        for uid in status_field(process.status, "Uid"):gmatch("%d+") do assert.are_not.equal("0", uid) end
        for gid in status_field(process.status, "Gid"):gmatch("%d+") do assert.are_not.equal("0", gid) end
      end
      if identity == "root" then
        assert.are.equal("", (status_field(answer.outside[2].status, "Groups"):gsub("%s", "")))
      end
    end)

    it("has no capability and cannot gain privileges", function()
      for _, set in ipairs { "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb" } do
        assert.are.equal("0000000000000000", status_field(results.status.output, set))
      end
      assert.are.equal("1", status_field(results.status.output, "NoNewPrivs"))
      assert.are.equal("2", status_field(results.status.output, "Seccomp"))
      for line in results.mountinfo.output:gmatch("[^\n]+") do assert.truthy(line:find("nosuid", 1, true), line) end
    end)

    it("is started with an empty environment", function()
      assert.are.equal("", answer.outside[1].environ)
      -- bubblewrap itself sets PWD; a plain user cannot even read that of the agent.
      local environ = answer.outside[2].environ
      assert.truthy(environ == "" or environ == "PWD=/home/user\0", environ)
      assert.are.equal("", results.first_process.output)
      local allowed = { PATH = 1, HOME = 1, PWD = 1, SHLVL = 1, _ = 1, LANG = 1, USER = 1, LOGNAME = 1, SHELL = 1 }
      for _, line in ipairs(lines(results.environment.output)) do assert.truthy(allowed[line:match("^[^=]+")], line) end
    end)

    it("shows nothing of the host but /usr, the links into it and a short list of /etc", function()
      local allowed = { bin = 1, sbin = 1, lib = 1, lib32 = 1, lib64 = 1, libx32 = 1, usr = 1, etc = 1, dev = 1, proc = 1,
        tmp = 1, run = 1, home = 1, var = 1 }
      for _, name in ipairs(lines(results.root.output)) do assert.truthy(allowed[name], name) end
      for _, name in ipairs(lines(results.etc.output)) do assert.is_true(is_promised(name), name) end
      for _, ours in ipairs(ETC_OURS) do
        assert.truthy(("\n" .. results.etc.output):find("\n" .. ours .. "\n", 1, true), ours)
      end
      assert.are.equal("", results.hidden.output)
    end)

    it("names no other path of the host in its mount table", function()
      for line in results.mountinfo.output:gmatch("[^\n]+") do
        local root, point, kind = line:match("^%d+ %d+ %S+ (%S+) (%S+) .- %- (%S+)")
        if kind ~= "tmpfs" and kind ~= "proc" and kind ~= "devpts" and kind ~= "devtmpfs" then
          assert.truthy(point:match("^/usr") or is_promised(point:match("^/etc/([^/]+)") or ""), line)
        end
        assert.falsy(root:match("^/home/.") or root:match("^/root") or root:match("^/tmp/."), line)
        assert.falsy(line:find(probe.stage(), 1, true), line)
      end
    end)

    it("can write to its own folders only, each with a size", function()
      assert.are.equal("", results.writes.output)
      assert.are.equal("/home/user\n/tmp\n/run\n/var/tmp\n/dev/shm\n", results.homes.output)
      for line in results.mountinfo.output:gmatch("[^\n]+") do
        local options, kind, super = line:match("^%d+ %d+ %S+ %S+ %S+ (%S+) .-%- (%S+) %S+ (%S+)")
        if kind == "tmpfs" and not options:match("^ro") then assert.truthy(super:match("size="), line) end
      end
    end)

    it("cannot fill more than its disk, and half of it or 64 MB in /tmp", function()
      for name, most_mb in pairs { home_full = DISK_MB, tmp_full = math.max(DISK_MB // 2, 64) } do
        local size = tonumber(results[name].output:match("(%d+)%s*$"))
        assert.is_true(size > 0 and size <= most_mb * 1024 * 1024, results[name].output)
      end
    end)

    it("cannot read what only root can", function()
      if not probe.is_root() then return pending("not root") end
      assert.are.equal(nil, results.secret.output:match("root%-only\n?$"))
      assert.truthy(results.secret.output:find("Permission denied", 1, true))
    end)

    it("has no network but its own loopback", function()
      local interfaces = lines(results.interfaces.output)
      assert.are.equal(1, #interfaces)
      assert.truthy(interfaces[1]:match("^%s*lo:"))
      assert.are.equal("0", results.host_server.output)
    end)

    it("sees no socket of the host", function()
      assert.are.equal("0\n", results.unix_sockets.output)
    end)

    it("sees no process of the host", function()
      assert.truthy(tonumber(results.processes.output:match("^(%d+)")) < 10)
      assert.falsy(results.processes.output:find("seen", 1, true))
    end)

    it("gives commands the descriptors 0, 1 and 2 and no other", function()
      local numbers = {}
      for _, line in ipairs(lines(results.fds.output)) do
        numbers[#numbers + 1] = line:match(" (%d+) %->") .. (line:find("/proc/", 1, true) and "*" or "")
      end
      -- 3 is the folder that ls itself reads.
      assert.are.same({ "0", "1", "2", "3*" }, numbers)
    end)

    it("lets two commands talk over localhost", function()
      assert.are.equal("hello\n", results.connect.output)
    end)

    it("fails to look up a name at once, and knows its own", function()
      local found, ms = results.look_up.output:match("(%d+) (%d+)")
      assert.are.equal("0", found)
      assert.is_true(tonumber(ms) < 100, ms .. " ms")
      assert.are.equal("1", results.own_name.output)
    end)

    it("keeps the PATH that a login shell is given", function()
      assert.are.equal("/usr/bin:/bin:/mine\n", results.login_shell.output)
      assert.are.equal("0022\n", results.umask.output)
    end)

    it("runs threads and other runtimes", function()
      if results.python_threads.code == 127 then return pending("no python3") end
      assert.are.equal("ran\n", results.python_threads.output)
    end)

    it("runs node", function()
      if results.node.code == 127 then return pending("no node in /usr") end
      assert.are.equal("42\n", results.node.output)
    end)

    it("bounds a fork bomb and stays usable", function()
      local forks = tonumber(results.fork_bomb.output:match("%d+"))
      assert.is_true(forks ~= nil and forks > 0 and forks <= PIDS, results.fork_bomb.output)
      assert.are.equal("alive\n", results.after_bomb.output)
    end)

    it("bounds a memory hog and stays usable", function()
      -- A group kills it; without one RLIMIT_DATA holds each process to the same number.
      assert.are_not.equal(0, results.memory_hog.code)
      assert.are_not.equal(tostring(600 * 1024 * 1024), results.memory_hog.output)
      assert.are.equal("alive\n", results.after_hog.output)
    end)

    it("is told the limits that hold and no others", function()
      assert.are.equal(answer.limits.memory and MEMORY_MB or nil, answer.memory_mb)
      assert.are.equal(answer.limits.cpu and 1 or nil, answer.cpu)
      assert.truthy(({ cgroup1 = 1, cgroup2 = 1, none = 1 })[answer.limits.kind])
    end)

    it("ends when it is killed", function() assert.is_true(answer.has_ended) end)

    it("may not make calls that reach out of it", function()
      if not NUMBERS[MACHINE] then return pending("no system call numbers for " .. MACHINE) end
      local tried = 0
      for name, result in pairs(results) do
        if name:match("^call ") then
          tried = tried + 1
          assert.are.equal(tostring(name == "call clone3" and ENOSYS or EPERM), result.output, name)
        elseif name:match("^clone ") then
          tried = tried + 1
          assert.are.equal(tostring(EPERM), result.output, name)
        elseif name:match("^ioctl ") then
          assert.are.equal(tostring(EPERM), result.output, name)
        end
      end
      assert.is_true(tried > 30)
    end)

    it("has sockets of four families only", function()
      if not NUMBERS[MACHINE] then return pending("no system call numbers for " .. MACHINE) end
      for _, name in ipairs { "unix", "inet", "inet6", "route" } do
        assert.are.equal("0", results["socket " .. name].output, name)
      end
      for _, name in ipairs { "packet", "alg", "vsock", "audit", "generic", "high", "high_protocol", "bluetooth", "zero" } do
        assert.are.equal(tostring(EAFNOSUPPORT), results["socket " .. name].output, name)
      end
      assert.are.equal(tostring(EAFNOSUPPORT), results["socketpair tipc"].output)
    end)

    it("kills what calls by the numbers of another architecture", function()
      if MACHINE ~= "x86_64" then return pending("x86_64 only") end
      local result = results.foreign
      assert.is_true(result.signal == 31 or result.code == 128 + 31, cjson.encode(result))
    end)
  end)
end
