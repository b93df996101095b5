--- audit/reader.lua - the records of an audit, decisions joined with their answers and outcomes.
--
-- All lines of one id are one row: a question, who answered it and how, how the call ended. Files are read piece by piece, and
-- only the newest rows are held; what is no record of ours is counted and passed over.
local core = require "demilune.core"

local json = core.json
local reader = {}

local PIECE_BYTES = 65536
--- No record of ours is longer.
local LINE_BYTES_MAX = 1024 * 1024
--- Rotated files that are looked for; the most that the configuration takes.
local FILES_MAX = 1000
--- Rows that are given, and rows held while it is not known yet whether they are wanted.
local ROWS_MAX, HELD_MAX = 1000, 2000

--- Outcomes by which a policy stopped a call, whatever was decided before it ran.
local STOPPED = {
  policy_denied = true, quota_exceeded = true, rate_limited = true, approval_required = true, approval_refused = true,
}

---@class demilune.audit.Row
---@field time string   of the first record
---@field id string
---@field decision string       the last one
---@field asked? boolean        a question came before it
---@field outcome? string
---@field duration_ms? integer
---  and the other keys of a decision's record

---@class demilune.audit.Wanted
---@field since? string                    a time of core.task.iso
---@field is_tool? fun(name: string): boolean
---@field denied? boolean                  those alone that were denied or refused
---@field arguments? boolean               keep the arguments

---@class demilune.audit.Reader
---@field wanted demilune.audit.Wanted
---@field damaged integer   lines that are no records
---@field left_out integer  rows that were wanted and given up for newer ones
local Reader = {}
Reader.__index = Reader

--- Makes one.
---@param wanted demilune.audit.Wanted
---@return demilune.audit.Reader
function reader.new(wanted)
  return setmetatable({ wanted = wanted, damaged = 0, left_out = 0, rows = {}, first = 1, last = 0, held = 0, by_id = {} }, Reader)
end

-- ---- rows ----

local function was_stopped(row) return row.decision == "deny" or STOPPED[row.outcome] == true end

local function is_wanted(self, row) return not self.wanted.denied or was_stopped(row) end

local function drop(self, row)
  self.rows[row.place], self.by_id[row.record.id], self.held = nil, nil, self.held - 1
end

--- Gives up the oldest row.
local function give_up_oldest(self)
  while not self.rows[self.first] do self.first = self.first + 1 end
  local row = self.rows[self.first]
  if is_wanted(self, row.record) then self.left_out = self.left_out + 1 end
  drop(self, row)
end

local function begin_row(self, record)
  if not self.wanted.arguments then record.arguments = nil end
  self.last, self.held = self.last + 1, self.held + 1
  local row = { record = record, place = self.last }
  self.rows[row.place], self.by_id[record.id] = row, row
  if self.held > HELD_MAX then give_up_oldest(self) end
end

--- The answer to a question. What the question came to before is over.
local function answer(row, record)
  local question = row.record
  question.asked = question.asked or question.decision == "ask" or nil
  question.decision, question.outcome, question.duration_ms = record.decision, nil, nil
  for _, key in ipairs { "rule", "answered_by", "approval_id", "sandbox_id" } do question[key] = record[key] or question[key] end
end

local function finish_row(self, row, record)
  local decided = row.record
  decided.outcome, decided.duration_ms = record.outcome, math.tointeger(record.duration_ms)
  decided.sandbox_id = record.sandbox_id or decided.sandbox_id
  if not is_wanted(self, decided) then drop(self, row) end
end

local function is_record(record)
  return type(record) == "table" and type(record.id) == "string" and type(record.time) == "string"
    and (type(record.outcome) == "string" or (type(record.decision) == "string" and type(record.tool) == "string"))
end

local function add_line(self, line)
  local record = json.decode(line)
  if not is_record(record) then
    self.damaged = self.damaged + 1
    return
  end
  local row, wanted = self.by_id[record.id], self.wanted
  if row then
    if record.decision then answer(row, record) else finish_row(self, row, record) end
  elseif record.decision and (not wanted.since or record.time >= wanted.since)
    and (not wanted.is_tool or wanted.is_tool(record.tool)) then
    begin_row(self, record)
  end
end

-- ---- files ----

--- Takes the lines of an open file. One that is too long is passed over in pieces.
local function add_file(self, file)
  local rest, is_too_long = "", false
  while true do
    local piece, why = file:read(PIECE_BYTES)
    if not piece and why then return nil, why end
    if not piece then break end
    local from = 1
    for stop in piece:gmatch "()\n" do
      if is_too_long then self.damaged = self.damaged + 1
      else add_line(self, rest .. piece:sub(from, stop - 1)) end
      rest, is_too_long, from = "", false, stop + 1
    end
    if not is_too_long then rest = rest .. piece:sub(from) end
    if #rest > LINE_BYTES_MAX then rest, is_too_long = "", true end
  end
  if is_too_long then self.damaged = self.damaged + 1 elseif rest ~= "" then add_line(self, rest) end
  return true
end

--- Why one of the files cannot be read, as far as that can be told before it is opened: a pipe would be waited for, and a
--- device need not end.
local function obstacle(stat, err)
  if not stat then return err.category ~= "file_not_found" and err.message:match "^(.-)%.?$" or nil end
  return stat.type == "directory" and "it is a folder" or stat.type ~= "file" and "it is no ordinary file" or nil
end

--- The files of an audit, oldest first, as far as they may hold something that is wanted.
---@return string[]? names
---@return string? why
local function files_of(path, since_s)
  local list = {}
  for number = 0, FILES_MAX do
    local name = number > 0 and ("%s.%d"):format(path, number) or path
    local stat, err = core.fs.stat(name)
    local why = obstacle(stat, err)
    if why then return nil, why end
    if not stat and number > 0 then break end
    if stat and (not since_s or stat.mtime >= since_s) then table.insert(list, 1, name) end
  end
  return list
end

--- Reads an audit with all its rotated files. No server rotates meanwhile.
---@param path string
---@param since_s? integer  files that were last written before are passed over
---@return true? done
---@return string? why
function Reader:read(path, since_s)
  -- A lock that is not there yet is not ours to make: another user's would keep the servers from rotating.
  local _ <close> = core.fs.stat(path .. ".lock") and core.fs.lock(path .. ".lock") or nil
  local names, obstacle_text = files_of(path, since_s)
  if not names then return nil, obstacle_text end
  for _, name in ipairs(names) do
    local file <close>, why = io.open(name, "rb")
    local ok = file ~= nil
    if file then ok, why = add_file(self, file) end
    if not ok then return nil, why end
  end
  return true
end

--- The newest rows that are wanted, oldest first.
---@return demilune.audit.Row[]
function Reader:result()
  local list = json.array {}
  for place = self.first, self.last do
    local row = self.rows[place]
    if row and is_wanted(self, row.record) then list[#list + 1] = row.record end
  end
  local extra = #list - ROWS_MAX
  if extra <= 0 then return list end
  self.left_out = self.left_out + extra
  return json.array(table.move(list, extra + 1, #list, 1, {}))
end

return reader
