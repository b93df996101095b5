/* worker.c - see worker.h.
 *
 * Nothing of the policy's runs outside of dml_limits_begin and dml_limits_end, and no Lua outside of a protected call. */
#include "fence/worker.h"

#include <lauxlib.h>
#include <stdio.h>
#include <string.h>

#include "fence/channel.h"
#include "fence/fault.h"
#include "fence/library.h"
#include "fence/limits.h"

#define DATA_T "data"
/* Rounds numbers from the server to what may be: the server is ours, but a mistake in it must not undo the limits. */
#define ALLOWANCE_MAX (INT64_C(1) << 40)

static int open_library(lua_State *L) {
  dml_library_open(L);
  return 0;
}

bool dml_worker_open(dml_policy *policy) {
  if (!dml_limits_open(policy)) return false;
  dml_channel_open(policy);
  lua_pushcfunction(policy->L, open_library);
  return lua_pcall(policy->L, 0, 0, 0) == LUA_OK;
}

/* Calls the function below `nargs` arguments under the limits; false with the policy's fault set. [-(1 + nargs), +results] */
static bool run(lua_State *L, int nargs, int nresults, const dml_allowance *allowance) {
  dml_policy *policy = dml_policy_of(L);
  int base = lua_gettop(L) - nargs;
  lua_pushcfunction(L, dml_fault_on_error);
  lua_insert(L, base);
  dml_limits_begin(policy, allowance);
  int status = lua_pcall(L, nargs, nresults, base);
  if (dml_limits_is_memory(L, status)) dml_limits_hit(policy, DML_WIRE_MEMORY);
  dml_limits_measure(policy);
  lua_remove(L, base);
  if (status == LUA_OK) return true;
  if (status != LUA_ERRRUN) dml_fault_set(policy, DML_WIRE_ERROR, "an error came while another was handled");
  return false;
}

static void pack_fault(dml_policy *policy, const dml_packer *packer, const char *whole, const char *part) {
  char text[DML_PACK_PLACE_BYTES + 160];
  const char *place = packer->place;
  if (!*place)
    snprintf(text, sizeof text, "%s %s", whole, packer->why);
  else
    snprintf(text, sizeof text, "%s%s %s", part, *part || *place != '.' ? place : place + 1, packer->why);
  dml_fault_set(policy, DML_WIRE_VALUE, text);
}

/* ---- loading ---- */

typedef struct load_order {
  const char *name, *source;
  size_t name_len, source_len;
  int64_t wants_data;
} load_order;

static int compile_and_run(lua_State *L) {
  const load_order *order = lua_touserdata(L, 1);
  dml_module_compile(L, lua_pushlstring(L, order->name, order->name_len), order->source, order->source_len);
  lua_call(L, 0, 1);
  return 1;
}

static bool pack_loaded(lua_State *L, bool wants_data) {
  dml_policy *policy = dml_policy_of(L);
  dml_packer packer = {.out = &policy->out, .allows_functions = true};
  dml_channel_begin(policy, DML_WIRE_LOADED);
  dml_channel_put_counters(policy);
  if (!wants_data) lua_pushnil(L);
  if (dml_pack_value(L, -1, &packer)) return true;
  pack_fault(policy, &packer, "the policy", "");
  return false;
}

static int load(lua_State *L) {
  dml_policy *policy = dml_policy_of(L);
  const load_order *order = lua_touserdata(L, 1);
  lua_pushcfunction(L, compile_and_run);
  lua_pushvalue(L, 1);
  policy->is_loading = true;
  bool is_good = run(L, 1, 1, &policy->of_load);
  policy->is_loading = false;
  if (is_good && !lua_istable(L, -1)) {
    dml_fault_set(policy, DML_WIRE_VALUE, "the policy must return a table");
    is_good = false;
  }
  if (is_good) {
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, DATA_T);
    is_good = pack_loaded(L, order->wants_data != 0);
  }
  dml_limits_end(policy);
  if (is_good)
    dml_channel_send(policy);
  else
    dml_channel_send_fault(policy);
  return 0;
}

static bool read_allowance(dml_unpacker *frame, dml_allowance *out) {
  if (!dml_unpack_integer(frame, &out->instructions) || !dml_unpack_integer(frame, &out->bytes) ||
      !dml_unpack_integer(frame, &out->cpu_ms))
    return false;
  return out->instructions > 0 && out->bytes > 0 && out->cpu_ms > 0 && out->instructions < ALLOWANCE_MAX &&
         out->bytes < ALLOWANCE_MAX && out->cpu_ms < ALLOWANCE_MAX;
}

static bool read_load(dml_policy *policy, dml_unpacker *frame, load_order *order) {
  return read_allowance(frame, &policy->of_load) && read_allowance(frame, &policy->of_call) &&
         dml_unpack_integer(frame, &order->wants_data) && dml_unpack_string(frame, &order->name, &order->name_len) &&
         dml_unpack_string(frame, &order->source, &order->source_len);
}

/* ---- calls ---- */

typedef struct call_order {
  dml_unpacker frame;
  const char *name;
  size_t name_len;
  int64_t arg_count;
} call_order;

/* A `deny("no")` without `return` does nothing, and whoever wrote it believes that it denies. */
static bool is_forgotten(lua_State *L, int result) {
  dml_policy *policy = dml_policy_of(L);
  if (policy->made == DML_WIRE_NONE || luaL_testudata(L, result, DML_DECISION_T)) return false;
  dml_fault_set(policy, DML_WIRE_ERROR, policy->made == DML_WIRE_DENY
                                          ? "deny(...) was called and not returned; write `return deny(...)`"
                                          : "ask(...) was called and not returned; write `return ask(...)`");
  return true;
}

/* Sends what the function returned, at `result`, and the arguments behind it as they are now. */
static bool pack_result(lua_State *L, int result, int arg_count, int nulls) {
  dml_policy *policy = dml_policy_of(L);
  dml_buffer *out = &policy->out;
  const dml_decision *decision = luaL_testudata(L, result, DML_DECISION_T);
  size_t reason_len = 0;
  const char *reason = NULL;
  if (decision && lua_getiuservalue(L, result, 1) == LUA_TSTRING) reason = lua_tolstring(L, -1, &reason_len);
  dml_channel_begin(policy, DML_WIRE_RESULT);
  dml_channel_put_counters(policy);
  dml_channel_must(dml_pack_integer(out, decision ? (int64_t)decision->kind : DML_WIRE_NONE));
  dml_channel_must(dml_pack_integer(out, reason != NULL));
  dml_channel_must(dml_pack_string(out, reason ? reason : "", reason_len));
  dml_channel_must(dml_pack_integer(out, lua_isnil(L, result)));
  dml_channel_must(dml_pack_integer(out, arg_count));
  dml_packer packer = {.out = out, .nulls = nulls, .call = policy->call};
  if (decision) lua_pushnil(L);
  if (!dml_pack_value(L, decision ? -1 : result, &packer)) {
    pack_fault(policy, &packer, "the result", "result");
    return false;
  }
  for (int i = 1; i <= arg_count; i++)
    if (!dml_pack_value(L, result + i, &packer)) {
      char part[32];
      snprintf(part, sizeof part, "argument %d: ", i);
      pack_fault(policy, &packer, part, part);
      return false;
    }
  return true;
}

/* The function and the arguments, twice: once to keep, once to call with. */
static bool push_call(lua_State *L, call_order *order, int nulls) {
  dml_policy *policy = dml_policy_of(L);
  lua_getfield(L, LUA_REGISTRYINDEX, DATA_T);
  lua_pushlstring(L, order->name, order->name_len);
  if (!lua_istable(L, -2) || lua_rawget(L, -2) != LUA_TFUNCTION) {
    char text[128];
    snprintf(text, sizeof text, "the policy has no function %.*s", (int)(order->name_len < 64 ? order->name_len : 64), order->name);
    dml_fault_set(policy, DML_WIRE_ERROR, text);
    return false;
  }
  lua_remove(L, -2);
  dml_unpacker *frame = &order->frame;
  frame->makes_views = true;
  frame->call = policy->call;
  frame->nulls = nulls;
  dml_channel_must(dml_unpack_check(frame, (unsigned)order->arg_count) ? DML_OK : DML_INTERNAL);
  int first = lua_gettop(L);
  for (int i = 1; i <= order->arg_count; i++) dml_unpack_value(L, frame);
  for (int i = 0; i <= order->arg_count; i++) lua_pushvalue(L, first + i);
  return true;
}

static int call(lua_State *L) {
  dml_policy *policy = dml_policy_of(L);
  call_order *order = lua_touserdata(L, 1);
  int count = (int)order->arg_count;
  lua_newtable(L);
  int nulls = lua_gettop(L);
  if (!push_call(L, order, nulls)) {
    dml_channel_send_fault(policy);
    return 0;
  }
  int function = lua_gettop(L) - 2 * count - 1;
  bool is_good = run(L, count, 1, &policy->of_call);
  if (is_good) {
    lua_replace(L, function); /* the arguments stand behind it */
    is_good = !is_forgotten(L, function) && pack_result(L, function, count, nulls);
  }
  dml_limits_end(policy);
  if (is_good)
    dml_channel_send(policy);
  else
    dml_channel_send_fault(policy);
  return 0;
}

/* ---- frames ---- */

static bool read_call(dml_unpacker *frame, call_order *order) {
  if (!dml_unpack_string(frame, &order->name, &order->name_len) || !dml_unpack_integer(frame, &order->arg_count)) return false;
  order->frame = *frame;
  return order->arg_count >= 0 && order->arg_count <= DML_WIRE_ARGS_MAX;
}

static void protect(dml_policy *policy, lua_CFunction fn, void *order) {
  lua_State *L = policy->L;
  policy->log_count = 0;
  policy->fault = (dml_fault){0};
  lua_pushcfunction(L, fn);
  lua_pushlightuserdata(L, order);
  int status = lua_pcall(L, 1, 0, 0);
  if (status != LUA_OK) dml_limits_hit(policy, DML_WIRE_MEMORY); /* only that can be raised there */
  lua_settop(L, 0);
}

void dml_worker_run(dml_policy *policy) {
  for (;;) {
    dml_unpacker frame;
    load_order loading;
    call_order calling;
    dml_wire_kind kind = dml_channel_receive(policy, &frame);
    if (kind == DML_WIRE_LOAD && policy->chunk_count == 0 && read_load(policy, &frame, &loading)) {
      protect(policy, load, &loading);
    } else if (kind == DML_WIRE_CALL && read_call(&frame, &calling)) {
      policy->call++;
      policy->made = DML_WIRE_NONE;
      protect(policy, call, &calling);
      policy->call++; /* no view outlives it */
    } else {
      dml_channel_must(DML_INTERNAL);
    }
    dml_limits_tidy(policy);
  }
}
