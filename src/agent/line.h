/* line.h - the newest whole line of an output, for progress messages. */
#ifndef DML_AGENT_LINE_H
#define DML_AGENT_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/frame.h"

/* One byte more than is shown, so that a cut can see whether it falls into a character. */
#define DML_LINE_BYTES (DML_FRAME_LINE_MAX + 1)

typedef struct dml_line {
  uint8_t partial[DML_LINE_BYTES]; /* the start of the line that is not whole yet */
  size_t partial_len;
  uint8_t text[DML_LINE_BYTES];
  size_t text_len;
} dml_line;

/* Takes the next bytes of the output; true when `text` is a new line that is not blank, of at most DML_FRAME_LINE_MAX
 * bytes, cut at a character border. */
bool dml_line_add(dml_line *line, const uint8_t *bytes, size_t len);

#endif
