--- Damaged configurations: whatever a text is, there is a configuration or one line about it.

local config = require "demilune.config"
local source = require "demilune.config.source"
local support = require "spec.config.support"

local MUTATIONS = 2000
local SEED = 20240229
local SECONDS_MAX = 100 -- of processor time; far less, but for instruments like valgrind

--- Pieces that are put in: what a person may type, and bytes that nobody types.
local PIECES = {
  "{", "}", "[", "]", "[[", "]]", "--", "--[==[", "'", '"', "\\", ",", ";", "=", "==", "return ", "local ",
  "nil", "true", "0/0", "1e999", "-1", "9223372036854775807", "'x'", "{}", "function() end", "end", "e2b", "policy",
  "@", "?", "http://", "https://",
  "host", "off", "#", "\0", "\255", "\xEF\xBB\xBF",
  "\xC3\xA9", "\n", "\r", "\t", "%s", "%", "...", "_ENV", "\27Lua", "~", "::a::",
}

local function pick(list) return list[math.random(#list)] end

--- Cuts, doubles, swaps and puts in.
local function mutate(text)
  for _ = 1, math.random(3) do
    local from = math.random(#text + 1)
    local to = math.min(#text, from + math.random(0, 12))
    local how = math.random(6)
    local before, within, after = text:sub(1, from - 1), text:sub(from, to), text:sub(to + 1)
    if how == 1 then text = before .. after
    elseif how == 2 then text = before .. within .. within .. after
    elseif how == 3 then text = before .. within:reverse() .. after
    elseif how == 4 then text = before .. pick(PIECES) .. within .. after
    elseif how == 5 then text = before .. pick(PIECES) .. after
    else text = before .. string.char(math.random(0, 255)) .. text:sub(from + 1)
    end
  end
  return text
end

--- Another value for a key, another name for a word: texts that are still Lua.
local function mutate_words(text)
  local tokens = source.tokens(text)
  local token = pick(tokens)
  local words = token.kind == "string" and token.text or token.text:gsub("%p", "%%%0")
  local with = math.random(3) == 1 and token.text:sub(2) .. token.text:sub(1, 1) or pick(PIECES)
  local count = 0
  return (text:gsub(words:gsub("%p", "%%%0"), function(found)
    count = count + 1
    return count == 1 and with or found
  end))
end

local function assert_sound(loaded)
  local is_id = {}
  for _, provider in ipairs(loaded.providers) do
    is_id[provider.id] = true
    assert(provider.lifetime <= provider.max_lifetime and provider.max_lifetime <= 86400)
    if provider.type ~= "local" then
      assert(loaded.credentials[provider.credential] and provider.max_requests >= 1)
      for _, key in ipairs { "api_url", "sandbox_url" } do
        local url = provider[key]
        assert(not url or url:find "^https://[^@?#]+$" or url:find "^http://localhost[/:]", url)
      end
    end
    assert(provider.type ~= "local" or next(provider.templates))
    for _, template in pairs(provider.type == "local" and provider.templates or {}) do
      assert(template.memory >= 64 and template.cpu >= 0.1 and template.network == "none" and template.explicit)
      for name, value in pairs(template.env) do assert(name:find("^[%a_][%w_]*$") and type(value) == "string") end
    end
  end
  for _, entry in pairs(loaded.credentials) do
    local from = entry.source
    assert(from:find "^env:[%a_]" or from:find "^cred:[%w_]" or from:find "^file:/" or from:find "^cmd:/", from)
  end
  assert(is_id[loaded.default_provider])
  assert(loaded.default_sandbox == "on" or loaded.default_sandbox == "off")
end

local function assert_one_line(message, path)
  assert(type(message) == "string" and not message:find("%c") and utf8.len(message), message)
  assert(#message < 700, message)
  assert(message:sub(1, #path + 1) == path .. ":" and message:find("^%d+: .+; .+", #path + 2), message)
end

describe("a damaged configuration", function()
  it("is a configuration or one line with file, line, fault and way out", function()
    math.randomseed(SEED)
    local started, sound, refused = os.clock(), 0, 0
    for i = 1, MUTATIONS do
      local text = (i % 2 == 0 and mutate or mutate_words)(support.whole)
      local path = support.file(text)
      local ran, loaded, message = pcall(config.load, path)
      os.remove(path)
      assert(ran, ("raised %s for\n%s"):format(loaded, text))
      if loaded then
        assert_sound(loaded)
        sound = sound + 1
      else
        assert_one_line(message, path)
        refused = refused + 1
      end
    end
    assert.is_true(os.clock() - started < SECONDS_MAX)
    assert.is_true(sound > 50 and refused > 1000, ("%d sound, %d refused"):format(sound, refused))
  end)

  it("is answered in time when it is as large as it may be", function()
    local started = os.clock()
    local line = " { id = 'a', type = 'local', x = { 1, 2, { 3 } } },\n"
    local text = "return { providers = {\n" .. line:rep((1 << 20) // #line - 1) .. "} }"
    assert.are.equal("1: providers has more than 16 entries; shorten it", support.fault(text))
    assert.are.equal("1: C stack overflow", support.fault("return " .. ("{"):rep(500000)):match("^[^;(]*w"))
    local keys = {}
    for i = 1, 90 do keys[i] = "k" .. i .. " = 1," end
    assert.are.equal("2: k1 is not a key",
      support.fault(("a = 1 "):rep(100000) .. "\nreturn { " .. table.concat(keys, "\n") .. " }"):match("^[^;]+"))
    assert.is_true(os.clock() - started < SECONDS_MAX)
  end)
end)
