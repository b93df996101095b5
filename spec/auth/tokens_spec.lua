--- auth/tokens: the operator's file of bearer tokens; auth with nothing but it.

local auth = require "demilune.auth"
local core = require "demilune.core"
local tokens = require "demilune.auth.tokens"

local TOKEN, OTHER = "dml-4f1c9a7e5b3d", "dml-0000000000"

describe("the file of tokens", function()
  local path

  before_each(function() path = os.tmpname() end)
  after_each(function() os.remove(path) end)

  local function write(text, mode)
    local file = assert(io.open(path, "w"))
    file:write(text)
    file:close()
    assert(os.execute(("chmod %s '%s'"):format(mode or "600", path)))
  end

  local function digest(token) return core.crypto.sha256(token) end

  local function fault_of(text, mode)
    write(text, mode)
    local list, message = tokens.read(path)
    assert.is_nil(list)
    assert.are.equal(1, (message:find(path, 1, true)))
    for word in text:gmatch "%w+" do
      assert.is_nil(#word > 8 and message:find(word, 1, true) or nil, message)
    end
    return message:sub(#path + 1)
  end

  it("has a caller a line, comments and empty lines", function()
    write(("# callers\n\nalice:%s\r\n  bob.ci@host:%s  \n"):format(digest(TOKEN), digest(OTHER):upper()))
    local list = assert(tokens.read(path))
    assert.are.equal(2, #list)
    assert.are.equal("alice", tokens.find(list, TOKEN))
    assert.are.equal("bob.ci@host", tokens.find(list, OTHER))
    assert.is_nil(tokens.find(list, TOKEN .. "x"))
    assert.is_nil(tokens.find(list, digest(TOKEN)))
    assert.is_nil(tokens.find(list, ""))
  end)

  it("is refused as a whole for one wrong line, with its number and without its words", function()
    local good = "alice:" .. digest(TOKEN) .. "\n"
    assert.truthy(fault_of(good .. "bob " .. digest(OTHER)):find "^:2: ")
    assert.truthy(fault_of("#\n" .. good .. "secrettokenitself"):find "^:3: ")
    assert.truthy(fault_of("bob:secrettokenitself"):find "^:1: .*SHA%-256")
    assert.truthy(fault_of("bob:" .. digest(OTHER) .. "0"):find "^:1: ")
    assert.truthy(fault_of(":" .. digest(OTHER)):find "^:1: .*name")
    assert.truthy(fault_of("local:root:" .. digest(OTHER)):find "^:1: ")
    assert.truthy(fault_of("two words:" .. digest(OTHER)):find "^:1: .*name")
    assert.truthy(fault_of("anonymous:" .. digest(OTHER)):find "^:1: .*nobody")
    assert.truthy(fault_of(("n"):rep(65) .. ":" .. digest(OTHER)):find "^:1: .*name")
    assert.truthy(fault_of(good .. "alice:" .. digest(OTHER)):find "^:2: .*line 1")
    assert.truthy(fault_of(good .. "bob:" .. digest(TOKEN)):find "^:2: .*token of line 1")
    assert.truthy(fault_of "# nobody\n":find "no token")
    assert.truthy(fault_of "":find "no token")
    assert.truthy(fault_of("\0\1\2"):find "^:1: ")
    assert.truthy(fault_of(("# a comment\n"):rep(30000)):find "256 KiB")
  end)

  it("is refused where others than its owner may use it", function()
    local good = "alice:" .. digest(TOKEN) .. "\n"
    for _, mode in ipairs { "640", "604", "620", "602", "610", "666", "777" } do
      assert.truthy(fault_of(good, mode):find "chmod 600")
    end
    write(good, "400")
    assert.is_table(tokens.read(path))
  end)

  it("is refused where it is missing or no file", function()
    local list, message = tokens.read "/nowhere/tokens"
    assert.is_nil(list)
    assert.truthy(message:find "is not there")
    list, message = tokens.read "/tmp"
    assert.is_nil(list)
    assert.truthy(message:find "no regular file")
  end)

  it("takes as many callers as it promises", function()
    local lines = {}
    for i = 1, tokens.COUNT_MAX + 1 do lines[i] = ("c%d:%s\n"):format(i, digest(tostring(i))) end
    assert.truthy(fault_of(table.concat(lines)):find "more than 1024")
    lines[#lines] = nil
    write(table.concat(lines))
    assert.are.equal(tokens.COUNT_MAX, #assert(tokens.read(path)))
  end)

  describe("in auth", function()
    local function identify(who, headers, query)
      local caller, refusal
      core.task.run(function() caller, refusal = who:identify(headers, query) end)
      return caller, refusal
    end

    local function refused(who, headers, query)
      local caller, refusal = identify(who, headers, query)
      assert.is_nil(caller)
      assert.is_nil(headers.authorization)
      for _, value in pairs(refusal.headers) do assert.is_nil(value:find(TOKEN, 1, true)) end
      assert.is_nil(refusal.message:find(TOKEN, 1, true))
      return refusal
    end

    it("names the holder, and takes the token out of the fields", function()
      write("alice:" .. digest(TOKEN))
      local who = assert(auth.new { token_file = path })
      assert.is_false(who.is_open)
      for _, scheme in ipairs { "Bearer", "bearer", "BEARER" } do
        local headers = { authorization = scheme .. " " .. TOKEN, host = "a" }
        assert.are.same({ principal = "alice" }, (identify(who, headers)))
        assert.is_nil(headers.authorization)
      end
    end)

    it("asks for a token where there is none, and says what is wrong with one", function()
      write("alice:" .. digest(TOKEN))
      local who = assert(auth.new { token_file = path })
      local refusal = refused(who, {})
      assert.are.equal(401, refusal.status)
      assert.are.equal('Bearer realm="demilune"', refusal.headers["WWW-Authenticate"])
      refusal = refused(who, { authorization = "Bearer " .. TOKEN .. "x" })
      assert.are.equal(401, refusal.status)
      assert.truthy(refusal.headers["WWW-Authenticate"]:find('error="invalid_token"', 1, true))
      local broken = { "Basic YTpi", "Bearer", "Bearer ", TOKEN, "Bearer " .. TOKEN .. ", Bearer " .. TOKEN,
        "Bearer " .. TOKEN .. " x", "Bearer tök", "Bearer " .. ("x"):rep(8193), "Bearer =" }
      for _, field in ipairs(broken) do
        refusal = refused(who, { authorization = field })
        assert.are.equal(400, refusal.status, field:sub(1, 40))
        assert.truthy(refusal.headers["WWW-Authenticate"]:find('error="invalid_request"', 1, true))
      end
    end)

    it("counts no token in the address, with or without another", function()
      write("alice:" .. digest(TOKEN))
      for _, who in ipairs { assert(auth.new { token_file = path }), assert(auth.new {}) } do
        local refusal = refused(who, {}, { access_token = TOKEN })
        assert.are.equal(400, refusal.status)
        assert.truthy(refusal.message:find "Authorization")
        assert.are.equal(400, refused(who, { authorization = "Bearer " .. TOKEN }, { access_token = "" }).status)
      end
    end)

    it("lets everybody in as anonymous without tokens", function()
      local who = assert(auth.new {})
      assert.is_true(who.is_open)
      assert.are.same({ principal = "anonymous" }, (identify(who, { authorization = "Bearer whatever" })))
      assert.are.same({ principal = "anonymous" }, (identify(who, { authorization = "Basic YTpi" }, {})))
      assert.is_nil(who:metadata("/.well-known/oauth-protected-resource", "a"))
      assert.is_true(who:reload())
    end)

    it("begins with no file that is wrong, and keeps what it has when a new one is", function()
      write "alice:nonsense"
      local who, message = auth.new { token_file = path }
      assert.is_nil(who)
      assert.truthy(message:find(":1: ", 1, true))
      write("alice:" .. digest(TOKEN))
      who = assert(auth.new { token_file = path })
      write "alice:nonsense"
      local done
      done, message = who:reload()
      assert.is_nil(done)
      assert.truthy(message:find(":1: ", 1, true))
      assert.are.equal("alice", identify(who, { authorization = "Bearer " .. TOKEN }).principal)
      write("bob:" .. digest(OTHER))
      assert.is_true(who:reload())
      assert.are.equal("bob", identify(who, { authorization = "Bearer " .. OTHER }).principal)
      assert.are.equal(401, refused(who, { authorization = "Bearer " .. TOKEN }).status)
    end)
  end)
end)
