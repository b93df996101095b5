--- Times as services write them.

local time = require "demilune.time"

describe("a time", function()
  it("is the milliseconds that it says, in every month and era", function()
    for at = -2208988800, 4102444800, 86400 * 97 + 12345 do
      local iso = os.date("!%Y-%m-%dT%H:%M:%SZ", at)
      assert.are.equal(iso, time.iso(iso))
      assert.are.equal(at * 1000, time.epoch_ms(iso), iso)
    end
    assert.are.equal(500, time.epoch_ms "1970-01-01T00:00:00.5Z")
    assert.are.equal(123, time.epoch_ms "1970-01-01T00:00:00.123456789Z")
    assert.are.equal(0, time.epoch_ms "1970-01-01T00:00:00.Z")
  end)

  it("is none where it is written otherwise", function()
    for _, odd in ipairs {
      "", "x", 7, false, "2026-12-01", "2026-12-01T00:00:00", "2026-12-01T00:00:00+01:00", "2026-12-01T00:00:00.1.2Z",
      "2026-12-01T00:00:009Z", "2026-12-01T00:00:00Z\n", "2026-12-01T00:00:00." .. ("1"):rep(40) .. "Z",
    } do
      assert.is_nil(time.iso(odd), tostring(odd))
    end
  end)
end)
