--- fetch_issue.lua - a tool of an operator's: one issue of a tracker, with a token that neither the model nor this file sees.
--
-- In the configuration:
--   tools = { "tools/*.lua" },
--   credentials = { tracker = { source = "env:TRACKER_TOKEN", origins = { "https://tracker.example.com" } } },
-- Copy the file and put your tracker's address into ORIGIN; a test may set it by a variable.

local ORIGIN = os.getenv "EXAMPLE_TRACKER" or "https://tracker.example.com"
local BODY_CHARACTERS = 4000

return {
  name = "fetch_issue",
  description = "Read an issue of our tracker by its number: title, state, labels and the beginning of its text.",
  effect = "read",
  is_open_world = true, -- the text is written by people outside
  input = {
    properties = { number = { type = "integer", minimum = 1, description = "As in TRACK-17: 17." } },
    required = { "number" },
  },
  output = {
    properties = {
      number = { type = "integer" }, title = { type = "string" }, is_open = { type = "boolean" },
      labels = { type = "array", items = { type = "string" } }, body = { type = { "string", "null" } },
    },
    required = { "number", "title", "is_open", "labels" },
  },
  handler = function(call, args)
    local answer = call:http {
      url = ("%s/api/issues/%d"):format(ORIGIN, args.number), headers = { accept = "application/json" },
      credential = "tracker", timeout_s = 10, max_bytes = 256 * 1024, any_status = true,
    }
    if answer.status == 404 then
      call:fail { category = "not_found", field = "number", message = ("There is no issue %d."):format(args.number) }
    end
    local issue = answer.json
    if answer.status ~= 200 or type(issue) ~= "table" then
      call:log("warn", ("the tracker answered with status %d"):format(answer.status))
      call:fail { category = "unavailable", message = "The tracker does not answer as it should.", retryable = true }
    end
    local body = type(issue.body) == "string" and issue.body or nil
    if body and utf8.len(body) > BODY_CHARACTERS then body = body:sub(1, utf8.offset(body, BODY_CHARACTERS + 1) - 1) end
    return {
      number = args.number, title = issue.title, is_open = issue.state == "open", labels = issue.labels or call.json.array {},
      body = body,
    }
  end,
}
