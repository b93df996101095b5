/* agent_frames.c - libFuzzer target: bytes from the channel through the inbox, the fields and the parser of START, and
 * the newest line of an output.
 *
 *   clang -std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=fuzzer,address,undefined -Isrc spec/fuzz/agent_frames.c \
 *     src/base/frame.c src/agent/line.c src/agent/fault.c -o /tmp/agent_frames && /tmp/agent_frames -max_total_time=60
 *
 * spawn.c is compiled in here, so that no part of the running agent is needed. */
#include <string.h>

#include "agent/line.h"
#include "agent/spawn.c"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void use_start(const dml_frame *frame) {
  dml_start start;
  if (dml_start_parse(frame->payload, frame->len, &start)) {
    size_t total = strlen(start.argv[0]);
    for (size_t i = 0; i < start.argc; i++) total += strlen(start.argv[i]);
    for (char **env = start.envp; *env; env++) total += strlen(*env);
    if (total == SIZE_MAX || start.argv[start.argc] || !search_path(&start)) total = 0;
  }
  dml_start_deinit(&start);
}

static void use_fields(const dml_frame *frame) {
  dml_field_reader reader = {frame->payload, frame->len};
  dml_field field;
  int64_t number;
  while (dml_field_next(&reader, &field) > 0)
    if (!dml_field_int(&field, &number)) dml_field_text(&field, DML_FRAME_PATH_MAX);
}

/* The first byte says in what pieces the rest arrives. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len) {
  if (len < 2) return 0;
  size_t step = 1 + bytes[0];
  dml_inbox inbox;
  dml_line line = {0};
  dml_frame frame;
  dml_frame_result result = DML_FRAME_MORE;
  dml_inbox_init(&inbox);
  for (size_t at = 1; at < len && result != DML_FRAME_BAD;) {
    size_t room;
    uint8_t *place = dml_inbox_reserve(&inbox, &room);
    if (!place) break;
    if (room > step) room = step;
    if (room > len - at) room = len - at;
    memcpy(place, bytes + at, room);
    dml_inbox_commit(&inbox, room);
    at += room;
    while ((result = dml_inbox_next(&inbox, &frame)) == DML_FRAME_WHOLE) {
      if (frame.type == DML_FRAME_START) use_start(&frame);
      else if (frame.type == DML_FRAME_DATA) dml_line_add(&line, frame.payload, frame.len);
      else use_fields(&frame);
    }
  }
  dml_inbox_deinit(&inbox);
  return 0;
}
