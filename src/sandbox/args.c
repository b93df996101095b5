/* args.c - see args.h. */
#include "sandbox/args.h"

#include <stdarg.h>
#include <stdio.h>

void dml_args_init(dml_args *args) {
  args->count = 0;
  args->text_len = 0;
  args->is_over = false;
}

static void push(dml_args *args, const char *text) {
  if (args->count >= DML_ARGS_MAX) {
    args->is_over = true;
    return;
  }
  args->argv[args->count++] = text;
}

void dml_args_add(dml_args *args, const char *first, ...) {
  va_list list;
  va_start(list, first);
  for (const char *text = first; text; text = va_arg(list, const char *)) push(args, text);
  va_end(list);
}

void dml_args_addf(dml_args *args, const char *format, ...) {
  size_t room = sizeof args->text - args->text_len;
  char *at = args->text + args->text_len;
  va_list list;
  va_start(list, format);
  int n = vsnprintf(at, room, format, list);
  va_end(list);
  if (n < 0 || (size_t)n >= room) {
    args->is_over = true;
    return;
  }
  args->text_len += (size_t)n + 1;
  push(args, at);
}

dml_status dml_args_finish(dml_args *args, char *const **argv) {
  if (args->is_over) return DML_TOO_LARGE;
  args->argv[args->count] = NULL;
  /* execve(2) takes char *const[] for historical reasons and changes nothing. */
  *argv = (char *const *)(void *)args->argv;
  return DML_OK;
}
