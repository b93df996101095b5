---@meta _

--- httpd.lua - core.httpd: HTTP/1.1 server (src/script/bind_httpd.c, src/net/http_server.h).
--
-- Strict: what two parsers could read differently is refused with 400 before any handler runs. Each request runs the
-- handler in a task of its own once its head is in. A handler that ends without an answer gives 500; one that ends
-- within an answer closes the connection. When the client goes away before the answer is complete, the handler's task
-- is cancelled.
error "lua/demilune/meta/httpd.lua is for editors and cannot be required"

---@class demilune.core.httpd
local httpd = {}

--- A listening server. It lives until it is closed, a <close> variable included.
---@class demilune.core.httpd.Server
local Server = {}

--- A request, and the one way to answer it. Its fields stay readable after the end; the tables are the handler's to
--- change.
---@class demilune.core.httpd.Request
---@field method string
---@field path string                    decoded, without the query
---@field query table<string, string>    decoded; values of a repeated name are joined with ","
---@field headers table<string, string>  by name in lower case; values of a repeated name are joined with ", "
---@field content_length? integer        where the request says
local Request = {}

---@class demilune.core.httpd.Options
---@field fd integer                a bound, listening stream socket, AF_UNIX or TCP
---@field connections integer       [1, 65536]; clients beyond wait in the socket's backlog
---@field max_requests integer      [1, 65536] at work at a time; 503 beyond
---@field max_header_bytes integer  [1024, 65536], request line included; 431 beyond
---@field idle_timeout_s? integer   [1, 86400], 75 without it: of a silent connection, a whole head, and an unwanted body
---@field tls? demilune.core.httpd.Tls  plain without it
---@field handler async fun(request: demilune.core.httpd.Request)

--- A certificate chain and its key. TLS is 1.2 or later.
---@class demilune.core.httpd.Tls
local Tls = {}

---@class demilune.core.httpd.Peer
---@field pid integer
---@field uid integer
---@field gid integer

---@alias demilune.core.httpd.Headers table<string, string|number|(string|number)[]>

--- Serves a socket with demilune_mhd.so. Takes `fd`, on an error too, but not when it raises for a wrong option.
--- Errors: internal.
---@param options demilune.core.httpd.Options
---@return demilune.core.httpd.Server?
---@return demilune.Error? err
function httpd.listen(options) end

--- Binds and listens on TCP. The descriptor is the caller's until `listen` takes it. Errors: invalid_argument (no
--- numeric address), those of dml_status_from_errno.
---@param address string  numeric, IPv4 or IPv6, without brackets
---@param port integer    [0, 65535]; 0 lets the kernel choose
---@return integer? fd
---@return integer|demilune.Error port  that was bound, or the error
function httpd.listen_tcp(address, port) end

--- Reads a certificate chain and its key from PEM files. The key's file must belong to this user or root, and others may
--- have no access to it, its group none but to read. The key itself never comes to Lua.
---@param cert_path string
---@param key_path string
---@return demilune.core.httpd.Tls?
---@return string? why  what is wrong with which of the two, without a path
function httpd.tls(cert_path, key_path) end

--- Until when the first certificate is valid.
---@return integer seconds  since 1970
function Tls:expires() end

--- Shows connections that begin from now on another certificate; those that are open stay as they are. Raises for a server
--- that was made without TLS, and for a closed one. Errors: internal.
---@param tls demilune.core.httpd.Tls
---@return true?
---@return demilune.Error? err
function Server:set_tls(tls) end

--- Stops listening and ends all requests. Twice is fine.
function Server:close() end

--- How many connections are open; 0 once closed.
---@return integer
function Server:connections() end

--- Waits for bytes of the body; nil alone is its end. Errors: connection_failed. What nobody reads stays with the
--- client beyond 256 KiB. Raises once the answer has begun, and while another task waits here.
---@async
---@return string? chunk
---@return demilune.Error? err
function Request:read() end

--- Waits for the whole body. Errors: too_large, at once where the request says so; connection_failed. Raises as
--- `read` does.
---@async
---@param max_bytes integer
---@return string? body
---@return demilune.Error? err
function Request:read_all(max_bytes) end

--- Answers with a whole body. Content-Length and Transfer-Encoding among the headers are left out, empty values too.
--- Errors: connection_failed (the client is gone), too_large (over 64 KiB of headers), internal. Raises for a second
--- answer and for a status or header that is not valid HTTP.
---@param status integer
---@param headers? demilune.core.httpd.Headers
---@param body? string  "" without it
---@return true?
---@return demilune.Error? err
function Request:respond(status, headers, body) end

--- Begins an answer whose body is written piece by piece: chunked, or of the length that a Content-Length among the
--- headers says. Errors and raises as those of `respond`.
---@param status integer
---@param headers? demilune.core.httpd.Headers
---@return true?
---@return demilune.Error? err
function Request:start(status, headers) end

--- Writes a piece of the body; waits while the client does not take what was written before (256 KiB). Errors:
--- connection_failed, internal. Raises before `start`, after `finish`, for more than the announced length, and while
--- another task waits here. A cancel while it waits aborts the answer.
---@async
---@param chunk string
---@return true?
---@return demilune.Error? err
function Request:write(chunk) end

--- Ends the body. One shorter than its announced length is cut off instead. Errors: connection_failed. Raises before
--- `start` and after `finish`.
---@return true?
---@return demilune.Error? err
function Request:finish() end

--- Closes the connection without a clean end. Harmless when the exchange is over.
function Request:abort() end

--- Who is at the other end of a unix socket (SO_PEERCRED); nil for TCP and once the exchange is over.
---@return demilune.core.httpd.Peer?
function Request:peer() end

return httpd
