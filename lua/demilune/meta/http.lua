---@meta _

--- http.lua - core.http: HTTP client: TCP, TLS, unix sockets (src/script/bind_http.c, src/net/http_client.h).
--
-- Connections are pooled in one client a Lua state, which the first request makes from demilune_curl.so. Whole requests
-- without a body speak HTTP/2 over TLS with a server that offers it, all else is HTTP/1.1. Certificates are always checked,
-- TLS is 1.2 or later. Redirects are not followed. A task that is cancelled while it waits here drops its transfer at once.
-- Errors hold no text from outside.
error "lua/demilune/meta/http.lua is for editors and cannot be required"

---@class demilune.core.http
local http = {}

---@class demilune.core.http.Options
---@field url string
---@field method? string              GET without it
---@field unix_socket? string         connect to this path, of at most 107 bytes, in place of the URL's host
--- A list is sent as a field each. Content-Length and Transfer-Encoding are the client's and left out here.
---@field headers? table<string, string|number|(string|number)[]>
---@field body? string                no body without it; "" is an empty one
---@field timeout_ms number           [1, 30 days] until the whole response is there; streaming: its head
---@field connect_timeout_ms? number  at least 1; 10000 without it
---@field max_body_bytes? integer     required unless streaming; a longer body is too_large
---@field stream? boolean             the response is a Stream
--- Handles of core.vault, each for a header. Raises when one may not go to the URL. They go through no proxy but in a
--- tunnel, and what C copied of them is wiped.
---@field credentials? demilune.core.Credential[]
--- Bindings of core.vault by JSON pointer ("*" is every element): strings there become handles, and a response of 2xx has
--- `json` in place of `body` (neither, when it is 204). Not with stream.
---@field tokens? table<string, demilune.core.Binding>
--- http, https, socks4a, socks5 or socks5h. "" is none; without it the environment's (https_proxy, no_proxy, ... by
--- libcurl's rules). Loopback hosts and unix sockets have none.
---@field proxy? string
---@field ca_file? string             the only bundle of certificates; else SSL_CERT_FILE, CURL_CA_BUNDLE, the system's
---@field is_fresh? boolean           a connection of its own, closed afterwards

---@class demilune.core.http.Response
---@field status integer
---@field headers table<string, string>  by name in lower case; values of a repeated name are joined with ", "
---@field body? string                   the whole body, unless it is streamed or holds tokens
---@field json? any                      the decoded body of a response with tokens
---@field redirect_url? string           of a 3xx, where its Location means one that could be requested; absolute

--- A response whose body is read piece by piece; what nobody reads stops the sender at 256 KiB. It is dropped by
--- `close`, at the end of a <close> variable, and when it is collected.
---@class demilune.core.http.Stream: demilune.core.http.Response
local Stream = {}

--- Sends a request and waits for the response, of whatever status. Errors: invalid_argument (method, URL, header, socket
--- path, proxy, CA file), authentication_failed (a credential is not loaded), unavailable (1024 transfers run),
--- connection_failed, provider_timeout, invalid_response, too_large, internal.
---@async
---@param options demilune.core.http.Options
---@return demilune.core.http.Response|demilune.core.http.Stream|nil response  a Stream with `stream`
---@return demilune.Error? err
function http.request(options) end

--- Closes pooled connections: now when nothing runs, else when the last running transfer is over.
function http.close_idle() end

--- Waits for bytes of the body; nil alone is its clean end. Errors: provider_timeout, after which reading may go on;
--- stopped (closed); connection_failed, invalid_response, internal (the transfer broke). One task at a time. A cancel
--- drops the transfer.
---@async
---@param timeout_ms? number
---@return string? chunk
---@return demilune.Error? err
function Stream:read(timeout_ms) end

--- Drops the transfer; a task that reads gets stopped. Twice is fine.
function Stream:close() end

return http
