--- core.crypto: known vectors, and encodings that are refused because there is a shorter or another way to say them.

local core = require "demilune.core"
local crypto = core.crypto

local function outcome(fn, ...)
  return select("#", fn(...)), (fn(...))
end

describe("crypto.sha256", function()
  it("gives the values of FIPS 180-4", function()
    assert.are.equal("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", crypto.sha256 "")
    assert.are.equal("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", crypto.sha256 "abc")
    assert.are.equal("cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0", crypto.sha256(("a"):rep(1000000)))
  end)
end)

describe("crypto.hmac", function()
  it("gives the values of RFC 4231", function()
    assert.are.equal("b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7", crypto.hmac(("\x0b"):rep(20), "Hi There"))
    assert.are.equal("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
      crypto.hmac("Jefe", "what do ya want for nothing?"))
    assert.are.equal("60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
      crypto.hmac(("\xaa"):rep(131), "Test Using Larger Than Block-Size Key - Hash Key First"))
  end)
end)

describe("crypto.base64", function()
  local VECTORS = { [""] = "", f = "Zg==", fo = "Zm8=", foo = "Zm9v", foob = "Zm9vYg==", fooba = "Zm9vYmE=", foobar = "Zm9vYmFy",
    ["\0\xFF\xFE"] = "AP/+" }

  it("gives the values of RFC 4648 §10 and takes them back", function()
    for plain, coded in pairs(VECTORS) do
      assert.are.equal(coded, crypto.base64(plain))
      assert.are.equal(plain, crypto.unbase64(coded))
    end
  end)

  it("takes back what it gave, of any length", function()
    for length = 1, 300 do
      local bytes = crypto.random(length)
      assert.are.equal(bytes, crypto.unbase64(crypto.base64(bytes)))
    end
  end)

  for _, text in ipairs {
    "Zg", "Zg=", "Zg===", "Z", "Z===", "Zh==", "Zm9=", "Zm8", "Zg==\n", " Zg==", "Zm 9v", "Zm9v\0", "_w==", "-w==", "=", "====",
      "Zg==Zg==",
    "Zm9v=", "Zm\xFF9",
  } do
    it(("refuses %q"):format(text), function()
      local count = outcome(crypto.unbase64, text)
      assert.are.equal(0, count)
    end)
  end
end)

describe("crypto.unbase64", function()
  it("takes the 64 letters of the alphabet and no other byte", function()
    local alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    for byte = 0, 255 do
      local letter = string.char(byte)
      local is_known = alphabet:find(letter, 1, true) ~= nil
      for at = 1, 3 do
        local text = ("AAAA"):sub(1, at - 1) .. letter .. ("AAAA"):sub(at + 1)
        assert.are.equal(is_known and 1 or 0, (outcome(crypto.unbase64, text)))
      end
    end
  end)
end)

describe("crypto.seal", function()
  local key, other = ("k"):rep(32), ("o"):rep(32)

  it("opens with its key alone, and never gives the same text twice", function()
    for _, plain in ipairs { "", "a", "\0\xFF", ("x"):rep(4096) } do
      local sealed = crypto.seal(key, plain)
      assert.truthy(sealed:find "^[%w_-]+$")
      assert.are.equal(plain, crypto.open(key, sealed))
      assert.are.equal(0, (outcome(crypto.open, other, sealed)))
      assert.are_not.equal(sealed, crypto.seal(key, plain))
    end
  end)

  it("refuses every change of one character, a cut and an addition", function()
    local sealed = crypto.seal(key, "task 7")
    for at = 1, #sealed do
      local byte = sealed:sub(at, at) == "A" and "B" or "A"
      assert.are.equal(0, (outcome(crypto.open, key, sealed:sub(1, at - 1) .. byte .. sealed:sub(at + 1))))
      assert.are.equal(0, (outcome(crypto.open, key, sealed:sub(1, at - 1))))
    end
    for _, tail in ipairs { "A", "=", "==", "\n", "\0", " " } do
      assert.are.equal(0, (outcome(crypto.open, key, sealed .. tail)))
    end
  end)

  it("refuses bytes beyond ASCII in the place of letters", function()
    local sealed = crypto.seal(key, "x")
    for byte = 128, 255 do
      for _, at in ipairs { 1, 30, #sealed } do
        local spelt = sealed:sub(1, at - 1) .. string.char(byte) .. sealed:sub(at + 1)
        assert.are.equal(0, (outcome(crypto.open, key, spelt)))
      end
    end
  end)

  it("refuses the other spelling of its last character", function()
    -- 24 + 16 + 1 = 41 bytes: the last of 55 characters carries two bits that mean nothing.
    local alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    local sealed = crypto.seal(key, "x")
    assert.are.equal(55, #sealed)
    local place = alphabet:find(sealed:sub(-1), 1, true)
    assert.are.equal(1, place % 4)
    for more = 1, 3 do
      local spelt = sealed:sub(1, -2) .. alphabet:sub(place + more, place + more)
      assert.are.equal(0, (outcome(crypto.open, key, spelt)))
    end
  end)

  it("refuses what is too long to be sealed, or sealed too long", function()
    assert.has_error(function() crypto.seal(key, ("x"):rep(4097)) end)
    assert.are.equal(0, (outcome(crypto.open, key, ("A"):rep(100000))))
    for _, bad in ipairs { "", "short", ("x"):rep(33) } do
      assert.has_error(function() crypto.seal(bad, "x") end)
      assert.has_error(function() crypto.open(bad, "x") end)
    end
  end)
end)

describe("crypto.random and crypto.id", function()
  it("give as much as they are asked for, and refuse the rest", function()
    assert.are.equal(4096, #crypto.random(4096))
    assert.are_not.equal(crypto.random(16), crypto.random(16))
    assert.truthy(crypto.id(64):find "^[a-z2-7]+$")
    assert.are.equal(1, #crypto.id(1))
    for _, n in ipairs { 0, -1, 4097, 1 << 40 } do assert.has_error(function() crypto.random(n) end) end
    for _, n in ipairs { 0, -1, 65 } do assert.has_error(function() crypto.id(n) end) end
  end)
end)
