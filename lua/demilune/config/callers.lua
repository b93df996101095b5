--- callers.lua - the keys of `http` that say who may call and how they reach us: shapes of keys.lua, data only.

local URL_BYTES_MAX = 1024
local AUDIENCE_BYTES_MAX = 1024
local SCOPE_BYTES_MAX = 256
--- Without spaces, quotes and backslashes (RFC 6749 §3.3).
local VISIBLE = "^[^%c%s\"\\\127-\255]+$"

local path = {
  kind = "string",
  max = 4096,
  pattern = "^[^~]",
  words = "a path that does not begin with ~",
}

return {
  token_file = path,
  tls = {
    kind = "record",
    required = { "cert", "key" },
    words = "a table { cert = …, key = … }",
    fields = { cert = path, key = path },
  },
  oauth = {
    kind = "record",
    required = { "issuer", "audience", "jwks" },
    words = "a table { issuer = …, audience = …, jwks = … }",
    fields = {
      -- Compared byte by byte with what tokens say, a slash at the end included.
      issuer = { kind = "url", max = URL_BYTES_MAX, is_exact = true },
      audience = {
        kind = "string",
        max = AUDIENCE_BYTES_MAX,
        pattern = VISIBLE,
        words = "what tokens for this server name as `aud`, such as its URL",
      },
      jwks = { kind = "url", max = URL_BYTES_MAX, is_exact = true },
      scopes = {
        kind = "list",
        max = 32,
        of = {
          kind = "string",
          max = SCOPE_BYTES_MAX,
          pattern = VISIBLE,
          words = "a scope: signs without spaces, quotes and backslashes",
        },
        default = {},
      },
      ca_file = path,
    },
  },
}
