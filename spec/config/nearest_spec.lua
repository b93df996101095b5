--- The guess at what somebody meant.

local nearest = require "demilune.nearest"

describe("demilune.nearest", function()
  it("counts insertions, deletions, changes and swaps of neighbours", function()
    assert.are.equal(0, nearest.distance("memory", "memory"))
    assert.are.equal(1, nearest.distance("memroy", "memory"))
    assert.are.equal(1, nearest.distance("memry", "memory"))
    assert.are.equal(1, nearest.distance("memoryy", "memory"))
    assert.are.equal(1, nearest.distance("nemory", "memory"))
    assert.are.equal(3, nearest.distance("kitten", "sitting"))
    assert.are.equal(4, nearest.distance("", "disk"))
    assert.are.equal(4, nearest.distance("disk", ""))
  end)

  it("names the nearest, whatever the case and the sign between words", function()
    local names = { "lifetime", "max_lifetime", "memory", "templates" }
    assert.are.equal("memory", nearest.of("memroy", names))
    assert.are.equal("lifetime", nearest.of("liftime", names))
    assert.are.equal("max_lifetime", nearest.of("max-lifetime", names))
    assert.are.equal("max_lifetime", nearest.of("MAX_LIFETIME", names))
    assert.are.equal("templates", nearest.of("template", names))
  end)

  it("takes a beginning of three letters for the word", function()
    assert.are.equal("memory", nearest.of("mem", { "disk", "memory" }))
    assert.are.equal("env", nearest.of("environment", { "disk", "env" }))
    assert.is_nil(nearest.of("me", { "disk", "memory" }))
  end)

  it("names none where none is near", function()
    assert.is_nil(nearest.of("colour", { "disk", "memory" }))
    assert.is_nil(nearest.of("", { "a", "memory" }))
    assert.is_nil(nearest.of("x", { "a", "b" }))
    assert.is_nil(nearest.of("memory", {}))
    assert.is_nil(nearest.of(("m"):rep(100000), { ("m"):rep(99999) }))
  end)

  it("takes the first in byte order among equals", function()
    assert.are.equal("caat", nearest.of("caxt", { "cayt", "caat", "cabt" }))
  end)
end)
