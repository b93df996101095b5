/* bind.h - the table of contents of everything Lua can see of C: one opener a module, each pushes one table. [-0, +1] */
#ifndef DML_SCRIPT_BIND_H
#define DML_SCRIPT_BIND_H

#include <lua.h>

#include "base/status.h"

int dml_open_json(lua_State *L);      /* bind_json.c: text <-> values */
int dml_open_task(lua_State *L);      /* task.c: spawn, run, cancel */
int dml_open_text(lua_State *L);      /* bind_text.c: UTF-8 */
int dml_open_crypto(lua_State *L);    /* bind_crypto.c: hashes, base64, random, sealing */
int dml_open_fs(lua_State *L);        /* bind_fs.c: the state folder */
int dml_open_log(lua_State *L);       /* bind_log.c */
int dml_open_sys(lua_State *L);       /* bind_sys.c: options, environment, signals, sockets */
int dml_open_process(lua_State *L);   /* bind_process.c: children */
int dml_open_stdio(lua_State *L);     /* bind_stdio.c: MCP over stdin and stdout */
int dml_open_rpc(lua_State *L);       /* bind_rpc.c: JSON-RPC messages as text */
int dml_open_status(lua_State *L);    /* error.c: the table of failures */
int dml_open_http(lua_State *L);      /* bind_http.c: HTTP client */
int dml_open_httpd(lua_State *L);     /* bind_httpd.c: HTTP server */
int dml_open_agent(lua_State *L);     /* bind_agent.c: channel to the in-sandbox agent */
int dml_open_isolation(lua_State *L); /* bind_isolation.c: local sandboxes */
int dml_open_jwt(lua_State *L);       /* bind_jwt.c: signed tokens */
int dml_open_fence(lua_State *L);     /* bind_fence.c: the process in which policy code runs */
int dml_open_vault(lua_State *L);     /* bind_vault.c: credentials, redaction */
int dml_open_regex(lua_State *L);     /* bind_regex.c: regular expressions, globs */

/* Each adds to the module table on top. [-0, +0] */
void dml_open_time(lua_State *L);   /* bind_time.c: sleep, event and now_ms of core.task */
void dml_open_append(lua_State *L); /* bind_append.c: append of core.fs */
void dml_open_unix(lua_State *L);   /* bind_unix.c: acceptor and connect_unix of core.sys */

/* `require "demilune.core"`: the table of all modules above, by name. */
int luaopen_demilune_core(lua_State *L);

#endif
