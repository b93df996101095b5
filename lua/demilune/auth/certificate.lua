--- auth/certificate.lua - the certificate that the server shows, of the files in `http.tls`.
local core = require "demilune.core"

local certificate = {}

--- A certificate that ends sooner is worth a word.
certificate.SOON_S = 7 * 86400

--- Reads both files.
---@param tls {cert: string, key: string}
---@return demilune.core.httpd.Tls?
---@return string? message  for a person: which files, what is wrong, what to do
function certificate.load(tls)
  local pair, why = core.httpd.tls(tls.cert, tls.key)
  if pair then return pair end
  return nil, ("http.tls (%s, %s): %s"):format(tls.cert, tls.key, why)
end

--- What should be said of a certificate that can be used: nil for nothing.
---@param pair demilune.core.httpd.Tls
---@return string?
function certificate.warning(pair)
  local ends_s = pair:expires()
  local left_s, at = ends_s - core.task.epoch_ms() // 1000, core.task.iso(ends_s * 1000):sub(1, 10)
  if left_s <= 0 then return ("the certificate of http.tls expired on %s, so clients will refuse it"):format(at) end
  if left_s < certificate.SOON_S then return ("the certificate of http.tls expires on %s"):format(at) end
end

return certificate
