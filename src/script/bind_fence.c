/* bind_fence.c - core.fence: the operator's policy code, run in a process that can be killed.
 *
 * fence.start(options?) -> Fence | nil, err
 * Fence:load(source, name, find) -> data | nil, fault
 * Fence:call(name, ...) -> outcome | nil, fault
 * Fence:status() -> table
 * Fence:stop()
 *
 * One request is at the worker at a time, the others stand in a queue. A worker that died is started again by the next
 * request, and loads what the first one loaded before it is asked. In a callback of the loop waking a task comes last:
 * what it does next may stop or collect the fence. */
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "script/bind.h"
#include "script/fence_reply.h"
#include "script/task.h"

#define FENCE_T "demilune.fence"
#define REQUEST_T "demilune.fence.request"
#define PROGRAM "demilune-fence"
#define PATH_BYTES 4096
#define QUEUE_MAX 1024
#define LOAD_FACTOR 20

typedef enum fence_phase { FENCE_IDLE, FENCE_LOADING, FENCE_CALLING } fence_phase;

typedef struct fence_module {
  char name[DML_WIRE_MODULE_NAME_MAX_BYTES + 1];
  char *source;
  size_t len;
} fence_module;

/* Lies on the stack of the task that waits; user value 1 is the list of long strings that were sent, or nil. */
typedef struct fence_request {
  struct fence *fence;
  dml_wait *wait; /* NULL: nobody waits any more */
  dml_buffer frame; /* to send */
  int64_t arg_count;
  uint32_t long_count;
  dml_fence_reply reply;
  int index;        /* its own, on that stack */
  bool is_queued;
  struct fence_request *next, *before; /* in the queue */
} fence_request;

typedef struct fence {
  dml_script *script;
  int64_t instructions, memory_bytes, cpu_ms, wall_ms;
  dml_fence_worker *worker; /* NULL: none */
  bool is_worker_loaded, is_loaded, is_load_begun, is_stopped;
  fence_phase phase;
  unsigned needs; /* modules that the present worker has asked for */
  char name[DML_WIRE_FILE_BYTES];
  char *source;
  size_t source_len;
  fence_module modules[DML_WIRE_MODULES_MAX];
  size_t module_count;
  fence_request *head, *tail;
  size_t queued;
  fence_request *running; /* NULL while FENCE_CALLING: it was cancelled */
  int64_t running_args;
  uint32_t running_longs;
  uv_timer_t *kick;
  lua_Integer starts;
  int64_t used_bytes;
} fence;

static fence *check_fence(lua_State *L) { return luaL_checkudata(L, 1, FENCE_T); }

static void free_handle(uv_handle_t *handle) { free(handle); }

/* ---- the queue ---- */

static void unlink_request(fence_request *r) {
  fence *f = r->fence;
  if (f->running == r) f->running = NULL;
  if (!r->is_queued) return;
  *(r->before ? &r->before->next : &f->head) = r->next;
  *(r->next ? &r->next->before : &f->tail) = r->before;
  r->is_queued = false;
  f->queued--;
}

static void enqueue(fence *f, fence_request *r) {
  r->next = NULL;
  r->before = f->tail;
  *(f->tail ? &f->tail->next : &f->head) = r;
  f->tail = r;
  r->is_queued = true;
  f->queued++;
}

/* The task was cancelled: what it asked stays at the worker, and its answer finds nobody. */
static void drop_request(void *ud) {
  fence_request *r = ud;
  r->wait = NULL;
  unlink_request(r);
}

static int push_reply(lua_State *co, void *ud) {
  fence_request *r = ud;
  int longs = 0;
  if (r->long_count > 0) {
    lua_getiuservalue(co, r->index, 1);
    longs = lua_gettop(co);
  }
  int n = dml_fence_reply_push(co, &r->reply, longs);
  dml_fence_reply_deinit(&r->reply);
  return n;
}

/* Takes the request out of everything and wakes its task with the reply. */
static void finish(fence_request *r) {
  unlink_request(r);
  dml_wait *wait = r->wait;
  r->wait = NULL;
  if (wait) dml_wait_wake(wait, push_reply, r);
}

/* ---- frames to the worker ---- */

static void begin_frame(dml_buffer *out, dml_wire_kind kind) {
  char header[DML_WIRE_HEADER_BYTES] = {0, 0, 0, 0, (char)kind};
  dml_buffer_init(out, DML_WIRE_FRAME_MAX_BYTES + DML_WIRE_HEADER_BYTES);
  dml_buffer_append(out, header, sizeof header);
}

static uint64_t load_wall_ms(const fence *f) { return (uint64_t)f->wall_ms * LOAD_FACTOR; }

static void send_load(fence *f) {
  dml_buffer out;
  begin_frame(&out, DML_WIRE_LOAD);
  const int64_t numbers[] = {f->instructions * LOAD_FACTOR, f->memory_bytes * LOAD_FACTOR, f->cpu_ms * LOAD_FACTOR,
                             f->instructions, f->memory_bytes, f->cpu_ms, !f->is_loaded};
  dml_status status = DML_OK;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers && status == DML_OK; i++)
    status = dml_pack_integer(&out, numbers[i]);
  if (status == DML_OK) status = dml_pack_string(&out, f->name, strlen(f->name));
  if (status == DML_OK) status = dml_pack_string(&out, f->source, f->source_len);
  f->phase = FENCE_LOADING;
  dml_fence_worker_send(f->worker, &out, load_wall_ms(f)); /* cut short without memory: the worker ends on it */
}

static void send_module(fence *f, const fence_module *module) {
  dml_buffer out;
  begin_frame(&out, DML_WIRE_MODULE);
  dml_status status = dml_pack_integer(&out, module != NULL);
  if (status == DML_OK) dml_pack_string(&out, module ? module->source : "", module ? module->len : 0);
  dml_fence_worker_send(f->worker, &out, load_wall_ms(f));
}

static void send_call(fence *f) {
  fence_request *r = f->head;
  unlink_request(r);
  f->running = r;
  f->running_args = r->arg_count;
  f->running_longs = r->long_count;
  f->phase = FENCE_CALLING;
  dml_fence_worker_send(f->worker, &r->frame, (uint64_t)f->wall_ms);
}

static void drop_worker(fence *f) {
  dml_fence_worker_free(f->worker);
  f->worker = NULL;
  f->is_worker_loaded = false;
  f->phase = FENCE_IDLE;
}

static const dml_fence_worker_ops OPS;

static dml_status start_worker(fence *f) {
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "%s/" PROGRAM, dml_script_dir(f->script));
  dml_status status = dml_fence_worker_start(dml_script_loop(f->script), path, &OPS, f, &f->worker);
  if (status != DML_OK) return status;
  f->starts++;
  f->needs = 0;
  send_load(f);
  return DML_OK;
}

static void on_kick(uv_timer_t *timer);

/* Goes on with the queue: at once where a loaded worker waits, else in the loop's next turn. */
static void go_on(fence *f) {
  if (f->phase != FENCE_IDLE || !f->head) return;
  if (f->worker && f->is_worker_loaded)
    send_call(f);
  else
    uv_timer_start(f->kick, on_kick, 0, 0);
}

static void on_kick(uv_timer_t *timer) {
  fence *f = timer->data;
  if (f->phase != FENCE_IDLE || !f->head) return;
  if (start_worker(f) == DML_OK) return;
  fence_request *r = f->head;
  dml_fence_reply_fail(&r->reply, DML_WIRE_CRASH, DML_WIRE_NO_LIMIT, "the policy's worker could not be started");
  unlink_request(r);
  go_on(f);
  finish(r);
}

/* ---- frames from the worker ---- */

/* Whom an answer, or the end of the worker, is for; NULL when nobody waits for it. */
static fence_request *addressee(fence *f) { return f->phase == FENCE_LOADING ? f->head : f->running; }

static void end_first_load(fence *f) {
  lua_State *L = dml_script_main(f->script);
  lua_pushnil(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, f);
  lua_pushnil(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &f->modules);
}

/* The worker did not do what was asked: `r->reply` says why. */
static void fail(fence *f, fence_request *r) {
  bool was_first = f->phase == FENCE_LOADING && !f->is_loaded;
  drop_worker(f);
  if (r) unlink_request(r);
  go_on(f);
  if (r) finish(r);
  if (was_first) end_first_load(f);
}

static void on_end(void *ud, const dml_fence_end *end) {
  fence *f = ud;
  if (f->phase == FENCE_IDLE) {
    drop_worker(f);
    return;
  }
  fence_request *r = addressee(f);
  if (r) dml_fence_reply_end(&r->reply, end);
  fail(f, r);
}

static void fail_broken(fence *f) {
  const dml_fence_end end = {.is_broken = true};
  on_end(f, &end);
}

static const fence_module *find_kept(const fence *f, const char *name, size_t len) {
  for (size_t i = 0; i < f->module_count; i++)
    if (strlen(f->modules[i].name) == len && memcmp(f->modules[i].name, name, len) == 0) return &f->modules[i];
  return NULL;
}

typedef struct module_question {
  fence *fence;
  const char *name;
  size_t len;
} module_question;

/* Keeps the text on top of the stack. NULL when it is none, or too large. */
static const fence_module *keep_module(lua_State *L, const module_question *q) {
  fence *f = q->fence;
  size_t len;
  const char *source = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &len) : NULL;
  if (!source || len > DML_WIRE_SOURCE_MAX_BYTES || f->module_count == DML_WIRE_MODULES_MAX) return NULL;
  fence_module *module = &f->modules[f->module_count];
  module->source = malloc(len + 1);
  if (!module->source) return NULL;
  memcpy(module->source, source, len);
  module->len = len;
  memcpy(module->name, q->name, q->len);
  f->module_count++;
  return module;
}

/* Asks `find`, and answers the worker, unless `find` has stopped the fence. */
static int ask_for_module(lua_State *L) {
  module_question *q = lua_touserdata(L, 1);
  fence *f = q->fence;
  const dml_fence_worker *asking = f->worker;
  lua_rawgetp(L, LUA_REGISTRYINDEX, f); /* so that it stays while this runs */
  lua_rawgetp(L, LUA_REGISTRYINDEX, &f->modules);
  lua_pushlstring(L, q->name, q->len);
  if (lua_pcall(L, 1, 1, 0) != LUA_OK) {
    size_t len;
    const char *text = dml_push_error_text(L, -1, &len);
    dml_log_write(dml_script_log(f->script), DML_LOG_ERROR, text, len);
    lua_pushnil(L);
  }
  if (f->worker != asking || f->phase != FENCE_LOADING) return 0;
  send_module(f, keep_module(L, q));
  return 0;
}

static bool is_module_name(const char *name, size_t len) {
  if (len == 0 || len > DML_WIRE_MODULE_NAME_MAX_BYTES) return false;
  char before = '.';
  for (size_t i = 0; i < len; before = name[i++]) {
    bool is_word = (name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z') ||
                   (name[i] >= '0' && name[i] <= '9') || name[i] == '_';
    if (!is_word && (name[i] != '.' || before == '.')) return false;
  }
  return before != '.';
}

static void on_need(fence *f, dml_buffer *frame) {
  dml_unpacker u = {.at = frame->data + DML_WIRE_HEADER_BYTES, .end = frame->data + frame->len};
  module_question q = {.fence = f};
  bool is_good = dml_unpack_string(&u, &q.name, &q.len) && u.at == u.end && is_module_name(q.name, q.len);
  if (!is_good || ++f->needs > DML_WIRE_NEEDS_MAX) {
    dml_buffer_deinit(frame);
    fail_broken(f);
    return;
  }
  const fence_module *kept = find_kept(f, q.name, q.len);
  if (kept || f->is_loaded)
    send_module(f, kept);
  else
    dml_script_enter(f->script, ask_for_module, &q);
  dml_buffer_deinit(frame);
}

static void on_loaded(fence *f, fence_request *r) {
  bool was_first = !f->is_loaded;
  f->phase = FENCE_IDLE;
  f->is_worker_loaded = f->is_loaded = true;
  if (dml_fence_worker_has_ended(f->worker)) drop_worker(f);
  if (was_first && r) unlink_request(r);
  go_on(f);
  if (was_first && r) finish(r);
  if (was_first) end_first_load(f);
}

/* `is_last`: it is about to exit. */
static void on_result(fence *f, fence_request *r, bool is_last) {
  f->running = NULL;
  f->phase = FENCE_IDLE;
  if (is_last || dml_fence_worker_has_ended(f->worker)) drop_worker(f);
  go_on(f);
  if (r) finish(r);
}

static void on_frame(void *ud, dml_wire_kind kind, dml_buffer *frame) {
  fence *f = ud;
  bool is_loading = f->phase == FENCE_LOADING;
  if (is_loading && kind == DML_WIRE_NEED) {
    on_need(f, frame);
    return;
  }
  fence_request *r = addressee(f);
  dml_fence_reply unwanted = {0}, *reply = r ? &r->reply : &unwanted;
  bool is_good = (kind == DML_WIRE_FAULT || kind == (is_loading ? DML_WIRE_LOADED : DML_WIRE_RESULT)) &&
                 dml_fence_reply_read(reply, kind, frame, f->running_args, f->running_longs, dml_script_log(f->script));
  dml_buffer_deinit(frame);
  bool is_fault = kind == DML_WIRE_FAULT, is_last = is_good && is_fault && reply->fault.kind == DML_WIRE_LIMIT;
  if (is_good) f->used_bytes = reply->memory_bytes;
  dml_fence_reply_deinit(&unwanted);
  if (!is_good)
    fail_broken(f);
  else if (is_loading && is_fault)
    fail(f, r);
  else if (is_loading)
    on_loaded(f, r);
  else
    on_result(f, r, is_last);
}

static const dml_fence_worker_ops OPS = {.on_frame = on_frame, .on_end = on_end};

/* ---- Lua face ---- */

static int push_fault(lua_State *L, dml_wire_fault kind, const char *text) {
  dml_fence_reply reply = {0};
  dml_fence_reply_fail(&reply, kind, DML_WIRE_NO_LIMIT, text);
  return dml_fence_reply_push(L, &reply, 0);
}

/* A request of the task that runs; leaves it on the stack. [-0, +1] */
static fence_request *request_new(lua_State *L, fence *f) {
  fence_request *r = lua_newuserdatauv(L, sizeof *r, 1);
  memset(r, 0, sizeof *r);
  r->fence = f;
  r->index = lua_gettop(L);
  luaL_setmetatable(L, REQUEST_T);
  return r;
}

static int request_gc(lua_State *L) {
  fence_request *r = lua_touserdata(L, 1);
  dml_buffer_deinit(&r->frame);
  dml_fence_reply_deinit(&r->reply);
  return 0;
}

static int64_t option(lua_State *L, const char *name, int64_t usual, int64_t least, int64_t most) {
  lua_getfield(L, -1, name);
  int64_t value = luaL_optinteger(L, -1, usual);
  if (value < least || value > most) luaL_error(L, "limits.%s must be from %I to %I", name, (LUAI_UACINT)least, (LUAI_UACINT)most);
  lua_pop(L, 1);
  return value;
}

static void read_options(lua_State *L, fence *f) {
  if (!lua_isnoneornil(L, 1)) {
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_getfield(L, 1, "limits");
  }
  if (lua_isnoneornil(L, 1) || lua_isnil(L, -1)) lua_newtable(L);
  luaL_checktype(L, -1, LUA_TTABLE);
  f->instructions = option(L, "instructions", 1000000, 1000, 1000000000);
  f->memory_bytes = option(L, "memory_bytes", 8 * 1024 * 1024, 64 * 1024, 256 * 1024 * 1024);
  f->cpu_ms = option(L, "cpu_ms", 50, 1, 10000);
  f->wall_ms = option(L, "wall_ms", 1000, 10, 60000);
  lua_settop(L, 2);
}

static int no_program(lua_State *L) {
  dml_push_error(L, DML_UNSUPPORTED);
  lua_pushliteral(L, PROGRAM " does not lie beside the other programs; install demilune again");
  lua_setfield(L, -2, "message");
  return 2;
}

/* fence.start(options?) -> Fence | nil, err; the process starts when there is something to load */
static int l_start(lua_State *L) {
  dml_script *script = dml_script_of(L);
  lua_settop(L, 1);
  fence *f = lua_newuserdatauv(L, sizeof *f, 0);
  memset(f, 0, sizeof *f);
  f->script = script;
  read_options(L, f);
  char path[PATH_BYTES];
  if ((size_t)snprintf(path, sizeof path, "%s/" PROGRAM, dml_script_dir(script)) >= sizeof path || access(path, X_OK) != 0)
    return no_program(L);
  f->kick = calloc(1, sizeof *f->kick);
  if (!f->kick) return dml_push_error(L, DML_INTERNAL);
  uv_timer_init(dml_loop_uv(dml_script_loop(script)), f->kick);
  f->kick->data = f;
  luaL_setmetatable(L, FENCE_T);
  return 1;
}

static bool keep_source(lua_State *L, fence *f) {
  size_t name_len;
  const char *source = lua_tolstring(L, 2, &f->source_len), *name = lua_tolstring(L, 3, &name_len);
  /* cut as the worker cuts it, at the front */
  if (name_len >= sizeof f->name) name += name_len + 1 - sizeof f->name;
  snprintf(f->name, sizeof f->name, "%s", name);
  f->source = malloc(f->source_len + 1);
  if (f->source) memcpy(f->source, source, f->source_len);
  return f->source != NULL;
}

/* Fence:load(source, name, find) -> data | nil, fault */
static int l_load(lua_State *L) {
  fence *f = check_fence(L);
  size_t len;
  luaL_checklstring(L, 2, &len);
  luaL_checkstring(L, 3);
  luaL_checktype(L, 4, LUA_TFUNCTION);
  luaL_argcheck(L, !f->is_load_begun, 1, "a fence loads once");
  if (f->is_stopped) return push_fault(L, DML_WIRE_CRASH, "the fence was stopped");
  if (len > DML_WIRE_SOURCE_MAX_BYTES) return push_fault(L, DML_WIRE_VALUE, "the policy is larger than 1 MiB");
  if (!keep_source(L, f)) return push_fault(L, DML_WIRE_CRASH, "there is no memory for the policy");
  lua_settop(L, 4);
  fence_request *r = request_new(L, f);
  r->wait = dml_wait_new(L, drop_request, r);
  f->is_load_begun = true;
  lua_pushvalue(L, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, f);
  lua_pushvalue(L, 4);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &f->modules);
  enqueue(f, r);
  go_on(f);
  return dml_wait_yield(L);
}

/* Packs name and arguments, at 2 and above; false with a fault on the stack when they are too large. */
static bool pack_call(lua_State *L, fence_request *r, int top) {
  begin_frame(&r->frame, DML_WIRE_CALL);
  size_t len;
  const char *name = lua_tolstring(L, 2, &len);
  r->arg_count = top - 2;
  dml_packer packer = {.out = &r->frame};
  bool ok = dml_pack_string(&r->frame, name, len) == DML_OK && dml_pack_integer(&r->frame, r->arg_count) == DML_OK;
  lua_newtable(L);
  packer.longs = lua_gettop(L);
  for (int i = 3; ok && i <= top; i++) {
    if (dml_pack_value(L, i, &packer)) continue;
    ok = false;
    if (!packer.is_too_large) luaL_error(L, "argument %d for the policy: %s %s", i - 2, packer.place, packer.why);
  }
  r->long_count = packer.long_count;
  if (r->long_count > 0) {
    lua_pushvalue(L, packer.longs);
    lua_setiuservalue(L, r->index, 1);
  }
  lua_settop(L, r->index);
  if (!ok) push_fault(L, DML_WIRE_VALUE, "the call is larger than what a policy can be asked about (32 MiB)");
  return ok;
}

/* Fence:call(name, ...) -> outcome | nil, fault */
static int l_call(lua_State *L) {
  fence *f = check_fence(L);
  luaL_checkstring(L, 2);
  int top = lua_gettop(L);
  luaL_argcheck(L, top <= 2 + DML_WIRE_ARGS_MAX, top, "a function of the policy gets at most two arguments");
  luaL_argcheck(L, f->is_loaded, 1, "no policy was loaded");
  if (f->is_stopped) return push_fault(L, DML_WIRE_CRASH, "the fence was stopped");
  if (f->queued >= QUEUE_MAX) return push_fault(L, DML_WIRE_CRASH, "too many calls wait for the policy's worker");
  fence_request *r = request_new(L, f);
  if (!pack_call(L, r, top)) return 2;
  r->wait = dml_wait_new(L, drop_request, r);
  enqueue(f, r);
  go_on(f);
  return dml_wait_yield(L);
}

/* Fence:status() -> { pid, is_running, restarts, memory_bytes } */
static int l_status(lua_State *L) {
  fence *f = check_fence(L);
  lua_createtable(L, 0, 4);
  if (f->worker) {
    lua_pushinteger(L, dml_fence_worker_pid(f->worker));
    lua_setfield(L, -2, "pid");
  }
  lua_pushboolean(L, f->worker != NULL);
  lua_setfield(L, -2, "is_running");
  lua_pushinteger(L, f->starts > 1 ? f->starts - 1 : 0);
  lua_setfield(L, -2, "restarts");
  lua_pushinteger(L, (lua_Integer)f->used_bytes);
  lua_setfield(L, -2, "memory_bytes");
  return 1;
}

static void stop(fence *f) {
  f->is_stopped = true;
  bool is_first = f->phase == FENCE_LOADING && !f->is_loaded;
  drop_worker(f);
  fence_request *r = f->running;
  while (r || (r = f->head)) {
    dml_fence_reply_fail(&r->reply, DML_WIRE_CRASH, DML_WIRE_NO_LIMIT, "the fence was stopped");
    finish(r);
    r = NULL;
  }
  if (is_first) end_first_load(f);
}

/* Fence:stop() - kills the worker; what waits for it gets a fault */
static int l_stop(lua_State *L) {
  stop(check_fence(L));
  return 0;
}

static int fence_gc(lua_State *L) {
  fence *f = lua_touserdata(L, 1);
  f->running = f->head = f->tail = NULL; /* who waits holds the fence: these are gone, too */
  drop_worker(f);
  if (f->kick) uv_close((uv_handle_t *)f->kick, free_handle);
  f->kick = NULL;
  free(f->source);
  for (size_t i = 0; i < f->module_count; i++) free(f->modules[i].source);
  f->source = NULL;
  f->module_count = 0;
  return 0;
}

static void make_class(lua_State *L, const char *name, const luaL_Reg *methods, lua_CFunction gc) {
  luaL_newmetatable(L, name);
  lua_pushcfunction(L, gc);
  lua_setfield(L, -2, "__gc");
  if (methods) {
    lua_newtable(L);
    luaL_setfuncs(L, methods, 0);
    lua_setfield(L, -2, "__index");
  }
  lua_pop(L, 1);
}

static const luaL_Reg METHODS[] = {
    {"load", l_load}, {"call", l_call}, {"status", l_status}, {"stop", l_stop}, {NULL, NULL}};
static const luaL_Reg FUNCTIONS[] = {{"start", l_start}, {NULL, NULL}};

int dml_open_fence(lua_State *L) {
  make_class(L, FENCE_T, METHODS, fence_gc);
  make_class(L, REQUEST_T, NULL, request_gc);
  luaL_newlib(L, FUNCTIONS);
  lua_pushcfunction(L, dml_fence_function);
  lua_setfield(L, -2, "FUNCTION");
  return 1;
}
