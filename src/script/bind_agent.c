/* bind_agent.c - core.agent: the channel to the agent in a sandbox, and the requests that are answered at once.
 *
 * agent.attach(fd) -> channel                      takes the descriptor
 * channel:ready(timeout_ms) -> true | nil, err
 * channel:closed(timeout_ms?) -> true | nil, "timeout"
 * channel:close()
 * channel:signal(pid, signo) -> true | nil, err
 * channel:processes() -> {{pid, cmd, args, cwd, tag}, ...} | nil, err
 * channel:stat(path) -> entry | nil, err
 *   entry: {name, path, type, size, mode, mtime_ms, owner, group, target}
 * channel:list(path, depth?, limit?) -> {entry, ...}, total | nil, err
 * channel:mkdir(path), channel:remove(path) -> true | nil, err
 * channel:move(from, to) -> true | nil, err
 * start, connect: bind_agent_proc.c; open_read, open_write: bind_agent_file.c; watch: bind_agent_watch.c */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "script/agent_face.h"
#include "script/bind.h"

#define PROCESS_ENTRIES_MAX 1024

/* A task that waits for the channel itself; lies on that task's stack. */
typedef struct channel_waiter {
  dml_agent_timer timer; /* first */
  struct channel_face *face;
  dml_wait *wait;
  bool wants_end; /* else: HELLO */
  bool has_timed_out;
  struct channel_waiter *next, **back;
} channel_waiter;

typedef struct channel_face {
  dml_agent_channel *channel; /* NULL once collected */
  channel_waiter *waiters;
} channel_face;

static channel_face *check_channel(lua_State *L) {
  channel_face *face = luaL_checkudata(L, 1, DML_AGENT_CHANNEL_T);
  luaL_argcheck(L, face->channel, 1, "the channel was collected");
  return face;
}

/* ---- the channel itself ---- */

static void unlink_waiter(channel_waiter *w) {
  if (w->back) {
    *w->back = w->next;
    if (w->next) w->next->back = w->back;
    w->back = NULL;
  }
  if (w->face->channel) dml_agent_timer_stop(w->face->channel, &w->timer);
}

static int push_state(lua_State *L, void *ud) {
  const channel_waiter *w = ud;
  bool is_shut = dml_agent_channel_is_shut(w->face->channel);
  if (w->wants_end && !is_shut) {
    lua_pushnil(L);
    lua_pushliteral(L, "timeout");
    return 2;
  }
  if (w->wants_end || dml_agent_channel_is_ready(w->face->channel)) {
    lua_pushboolean(L, true);
    return 1;
  }
  return dml_agent_push_fault(L, is_shut ? DML_FAULT_CLOSED : DML_FAULT_TIMEOUT, -1, 0);
}

static void wake(channel_waiter *w) {
  unlink_waiter(w);
  dml_wait_wake(w->wait, push_state, w);
}

static void on_timeout(dml_agent_timer *timer) { wake((channel_waiter *)timer); }

static void drop_waiter(void *ud) { unlink_waiter(ud); }

static void on_change(dml_agent_channel *channel, void *ud) {
  channel_face *face = ud;
  bool is_shut = dml_agent_channel_is_shut(channel);
  for (;;) {
    channel_waiter *w = face->waiters;
    while (w && w->wants_end && !is_shut) w = w->next;
    if (!w) return;
    wake(w);
  }
}

static int wait_for(lua_State *L, bool wants_end, lua_Number timeout_ms) {
  channel_face *face = check_channel(L);
  bool is_shut = dml_agent_channel_is_shut(face->channel);
  lua_settop(L, 1);
  channel_waiter *w = lua_newuserdatauv(L, sizeof *w, 0);
  *w = (channel_waiter){.face = face, .wants_end = wants_end};
  if (is_shut || (!wants_end && dml_agent_channel_is_ready(face->channel))) return push_state(L, w);
  w->wait = dml_wait_new(L, drop_waiter, w);
  w->next = face->waiters;
  w->back = &face->waiters;
  if (w->next) w->next->back = &w->next;
  face->waiters = w;
  if (timeout_ms > INT32_MAX) timeout_ms = INT32_MAX;
  if (timeout_ms >= 0) dml_agent_timer_start(face->channel, &w->timer, (uint64_t)timeout_ms, on_timeout);
  return dml_wait_yield(L);
}

static int l_ready(lua_State *L) {
  lua_Number timeout_ms = luaL_checknumber(L, 2);
  return wait_for(L, false, timeout_ms > 0 ? timeout_ms : 0);
}

static int l_closed(lua_State *L) { return wait_for(L, true, luaL_optnumber(L, 2, -1)); }

static int l_close(lua_State *L) {
  dml_agent_channel_shut(check_channel(L)->channel);
  return 0;
}

static int channel_gc(lua_State *L) {
  channel_face *face = lua_touserdata(L, 1);
  dml_agent_channel *channel = face->channel;
  face->channel = NULL;
  dml_agent_channel_free(channel);
  return 0;
}

static int l_attach(lua_State *L) {
  int fd = (int)luaL_checkinteger(L, 1);
  luaL_argcheck(L, fd >= 0 && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0, 1, "not an open descriptor");
  channel_face *face = lua_newuserdatauv(L, sizeof *face, 0);
  *face = (channel_face){0};
  luaL_setmetatable(L, DML_AGENT_CHANNEL_T);
  dml_status status = dml_agent_channel_new(dml_script_of(L), fd, on_change, face, &face->channel);
  return status == DML_OK ? 1 : dml_push_error(L, status);
}

/* ---- requests ---- */

bool dml_agent_put_path(lua_State *L, int index, dml_field_tag tag, dml_fields *fields) {
  size_t len;
  const char *path = luaL_checklstring(L, index, &len);
  if (len == 0 || len > DML_FRAME_PATH_MAX || strlen(path) != len) return false;
  dml_fields_put_text(fields, tag, path);
  return true;
}

/* An entry too many breaks the protocol; entries too large in all only end the request. */
static bool take_entry(dml_agent_face *face, const dml_frame *frame) {
  if (face->entries_left == 0 || frame->len > DML_AGENT_ENTRY_BYTES || frame->flags) return false;
  face->entries_left--;
  if (frame->len > face->entry_bytes_left) {
    face->fault = DML_FAULT_TOO_LARGE;
    dml_agent_face_release(face);
    dml_agent_face_wake(&face->reading);
    return true;
  }
  face->entry_bytes_left -= frame->len;
  return dml_agent_face_take_chunk(face, frame);
}

static bool on_frame(dml_agent_stream *stream, const dml_frame *frame) {
  dml_agent_face *face = (dml_agent_face *)stream;
  bool is_good;
  switch (frame->type) {
  case DML_FRAME_ENTRY: return take_entry(face, frame);
  case DML_FRAME_ERROR: is_good = dml_agent_face_take_error(face, frame); break;
  case DML_FRAME_DONE: is_good = face->is_done = dml_agent_face_take_numbers(face, frame); break;
  default: return false;
  }
  if (is_good) dml_agent_face_wake(&face->reading);
  return is_good;
}

static const dml_agent_stream_ops REQUEST = {.frame = on_frame, .closed = dml_agent_face_closed};

static dml_agent_face *new_request(lua_State *L, size_t entries_max) {
  channel_face *channel = check_channel(L);
  dml_agent_face *face = dml_agent_face_new(L, channel->channel, DML_AGENT_REQUEST_T);
  face->entries_left = entries_max;
  face->entry_bytes_left = DML_AGENT_REPLY_BYTES;
  return face;
}

static int push_true(lua_State *L, void *ud) {
  dml_agent_face *face = ud;
  if (!face->is_done) return dml_agent_push_face_fault(L, face);
  lua_pushboolean(L, true);
  return 1;
}

static int ask_for_path(lua_State *L, dml_frame_type type, size_t entries_max, dml_wait_push push) {
  dml_agent_face *face = new_request(L, entries_max);
  if (!dml_agent_put_path(L, 2, DML_FIELD_PATH, &face->fields)) return dml_agent_push_fault(L, DML_FAULT_INVALID, -1, 0);
  return dml_agent_face_ask(L, face, &REQUEST, type, push);
}

static int l_mkdir(lua_State *L) { return ask_for_path(L, DML_FRAME_MKDIR, 0, push_true); }

static int l_remove(lua_State *L) { return ask_for_path(L, DML_FRAME_REMOVE, 0, push_true); }

static int l_move(lua_State *L) {
  dml_agent_face *face = new_request(L, 0);
  if (!dml_agent_put_path(L, 2, DML_FIELD_PATH, &face->fields) || !dml_agent_put_path(L, 3, DML_FIELD_TO, &face->fields))
    return dml_agent_push_fault(L, DML_FAULT_INVALID, -1, 0);
  return dml_agent_face_ask(L, face, &REQUEST, DML_FRAME_MOVE, push_true);
}

static int l_signal(lua_State *L) {
  lua_Integer pid = luaL_checkinteger(L, 2), signo = luaL_checkinteger(L, 3);
  luaL_argcheck(L, signo >= 1 && signo <= 64, 3, "no such signal");
  dml_agent_face *face = new_request(L, 0);
  if (pid <= 0) return dml_agent_push_fault(L, DML_FAULT_NOT_FOUND, -1, 0);
  dml_fields_put_int(&face->fields, DML_FIELD_PID, pid);
  dml_fields_put_int(&face->fields, DML_FIELD_SIGNO, signo);
  return dml_agent_face_ask(L, face, &REQUEST, DML_FRAME_SIGNAL, push_true);
}

/* ---- entries ---- */

static const struct {
  uint8_t tag;
  const char *name;
} ENTRY_KEYS[] = {{DML_FIELD_PID, "pid"},       {DML_FIELD_CMD, "cmd"},           {DML_FIELD_CWD, "cwd"},
                  {DML_FIELD_TAG, "tag"},       {DML_FIELD_NAME, "name"},         {DML_FIELD_PATH, "path"},
                  {DML_FIELD_TYPE, "type"},     {DML_FIELD_SIZE, "size"},         {DML_FIELD_MODE, "mode"},
                  {DML_FIELD_OWNER, "owner"},   {DML_FIELD_MTIME_MS, "mtime_ms"}, {DML_FIELD_GROUP, "group"},
                  {DML_FIELD_TARGET, "target"}, {DML_FIELD_ARG, "args"}};

static const char *const TYPE_NAMES[] = {"file", "directory", "symlink", "other"};

static const char *key_of(uint8_t tag) {
  for (size_t i = 0; i < sizeof ENTRY_KEYS / sizeof *ENTRY_KEYS; i++)
    if (ENTRY_KEYS[i].tag == tag) return ENTRY_KEYS[i].name;
  return NULL;
}

/* The value of one field of an entry: some tags are numbers of 8 bytes, all else is text. False: it is not.
 * [-0, +1] or [-0, +0] */
static bool push_value(lua_State *L, const dml_field *field) {
  int64_t number;
  switch (field->tag) {
  case DML_FIELD_TYPE:
    if (!dml_field_int(field, &number) || number < 0 || number > DML_ENTRY_OTHER) return false;
    lua_pushstring(L, TYPE_NAMES[number]);
    return true;
  case DML_FIELD_PID:
  case DML_FIELD_SIZE:
  case DML_FIELD_MODE:
  case DML_FIELD_MTIME_MS:
    if (!dml_field_int(field, &number)) return false;
    lua_pushinteger(L, field->tag == DML_FIELD_MODE ? number & 07777 : number);
    return true;
  default: {
    const char *text = dml_field_text(field, DML_AGENT_ENTRY_BYTES);
    if (text) lua_pushlstring(L, text, field->len - 1);
    return text != NULL;
  }
  }
}

/* The table of one entry; false (and a table nonetheless) when it is malformed. [-0, +1] */
static bool push_entry_fields(lua_State *L, const dml_agent_chunk *chunk) {
  dml_field_reader reader = {(const uint8_t *)chunk->bytes, chunk->len};
  dml_field field;
  int more;
  lua_Integer args = 0;
  lua_createtable(L, 0, 10);
  while ((more = dml_field_next(&reader, &field)) > 0) {
    const char *key = key_of(field.tag);
    if (!key || !push_value(L, &field)) return false;
    if (field.tag != DML_FIELD_ARG) {
      lua_setfield(L, -2, key);
      continue;
    }
    if (args == 0) {
      lua_newtable(L);
      lua_setfield(L, -3, key);
    }
    lua_getfield(L, -2, key);
    lua_insert(L, -2);
    lua_rawseti(L, -2, ++args);
    lua_pop(L, 1);
  }
  return more == 0;
}

/* A malformed entry means an agent that is not ours. */
static int refuse_entries(lua_State *L, dml_agent_face *face) {
  dml_agent_channel_shut(face->channel);
  return dml_agent_push_fault(L, DML_FAULT_CLOSED, -1, 0);
}

/* {entry, ...}, total */
static int push_entries(lua_State *L, void *ud) {
  dml_agent_face *face = ud;
  if (!face->is_done) return dml_agent_push_face_fault(L, face);
  lua_newtable(L);
  lua_Integer count = 0;
  for (dml_agent_chunk *chunk; (chunk = face->first); count++) {
    if (!push_entry_fields(L, chunk)) return refuse_entries(L, face);
    lua_rawseti(L, -2, count + 1);
    free(dml_agent_face_pop(face));
  }
  lua_pushinteger(L, face->total > count ? face->total : count);
  return 2;
}

static int push_processes(lua_State *L, void *ud) {
  int pushed = push_entries(L, ud);
  if (lua_isnil(L, -pushed)) return pushed;
  lua_pop(L, 1);
  lua_Integer count = (lua_Integer)lua_rawlen(L, -1);
  for (lua_Integer i = 1; i <= count; i++) {
    lua_rawgeti(L, -1, i);
    if (lua_getfield(L, -1, "args") == LUA_TNIL) {
      lua_newtable(L);
      lua_setfield(L, -3, "args");
    }
    lua_pop(L, 2);
  }
  return 1;
}

static int push_entry(lua_State *L, void *ud) {
  dml_agent_face *face = ud;
  if (!face->is_done) return dml_agent_push_face_fault(L, face);
  if (!face->first || !push_entry_fields(L, face->first)) return refuse_entries(L, face);
  return 1;
}

static int l_stat(lua_State *L) { return ask_for_path(L, DML_FRAME_STAT, 1, push_entry); }

static int l_processes(lua_State *L) {
  dml_agent_face *face = new_request(L, PROCESS_ENTRIES_MAX);
  return dml_agent_face_ask(L, face, &REQUEST, DML_FRAME_PROCESSES, push_processes);
}

static int l_list(lua_State *L) {
  lua_Integer depth = luaL_optinteger(L, 3, 1), limit = luaL_optinteger(L, 4, DML_FRAME_LIST_MAX);
  luaL_argcheck(L, depth >= 1 && depth <= DML_FRAME_DEPTH_MAX, 3, "depth out of range");
  luaL_argcheck(L, limit >= 1 && limit <= DML_FRAME_LIST_MAX, 4, "limit out of range");
  dml_agent_face *face = new_request(L, (size_t)limit);
  if (!dml_agent_put_path(L, 2, DML_FIELD_PATH, &face->fields)) return dml_agent_push_fault(L, DML_FAULT_INVALID, -1, 0);
  dml_fields_put_int(&face->fields, DML_FIELD_DEPTH, depth);
  dml_fields_put_int(&face->fields, DML_FIELD_LIMIT, limit);
  return dml_agent_face_ask(L, face, &REQUEST, DML_FRAME_LIST, push_entries);
}

/* ---- what the other files serve ---- */

static int l_start(lua_State *L) { return dml_agent_start(L, check_channel(L)->channel); }

static int l_connect(lua_State *L) { return dml_agent_connect(L, check_channel(L)->channel); }

static int l_open_read(lua_State *L) { return dml_agent_open_read(L, check_channel(L)->channel); }

static int l_open_write(lua_State *L) { return dml_agent_open_write(L, check_channel(L)->channel); }

static int l_watch(lua_State *L) { return dml_agent_watch(L, check_channel(L)->channel); }

static const luaL_Reg METHODS[] = {{"ready", l_ready},
                                   {"closed", l_closed},
                                   {"close", l_close},
                                   {"start", l_start},
                                   {"connect", l_connect},
                                   {"signal", l_signal},
                                   {"processes", l_processes},
                                   {"stat", l_stat},
                                   {"list", l_list},
                                   {"mkdir", l_mkdir},
                                   {"remove", l_remove},
                                   {"move", l_move},
                                   {"watch", l_watch},
                                   {"open_read", l_open_read},
                                   {"open_write", l_open_write},
                                   {NULL, NULL}};

static const luaL_Reg FUNCTIONS[] = {{"attach", l_attach}, {NULL, NULL}};

static void open_channel_class(lua_State *L) {
  if (luaL_newmetatable(L, DML_AGENT_CHANNEL_T)) {
    luaL_newlib(L, METHODS);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, channel_gc);
    lua_setfield(L, -2, "__gc");
    lua_pushcfunction(L, l_close);
    lua_setfield(L, -2, "__close");
    lua_pushboolean(L, false);
    lua_setfield(L, -2, "__metatable");
  }
  lua_pop(L, 1);
}

int dml_open_agent(lua_State *L) {
  open_channel_class(L);
  dml_agent_class(L, DML_AGENT_REQUEST_T, NULL, NULL);
  dml_open_agent_proc(L);
  dml_open_agent_file(L);
  dml_open_agent_watch(L);
  luaL_newlib(L, FUNCTIONS);
  return 1;
}
